"""`Environment`: what rollwise needs of an environment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rollwise.errors import DataError


@dataclass(frozen=True)
class Question:
    """A row of an environment's data.

    Attributes:
        messages: What the model is shown, each with `role` and `content`.
        row: All of the row that scoring needs, in JSON.
    """

    messages: tuple[dict[str, str], ...]
    row: str


class Environment(Protocol):
    """A single-turn environment: it asks, the model answers once, it scores."""

    def questions(self, split: str) -> list[Question]:
        """List its questions, in its order: those to train on (`train`), or to evaluate on (other).

        Raises:
            DataError: A row asks with more than text, or cannot be written as JSON.
        """
        ...

    def score(self, response: str, row: str) -> float:
        """Return the reward of a response to the question of `row`; raises what its code raises."""
        ...


def messages_of(
    prompt: str | Iterable[Mapping[str, Any]] | None, place: str
) -> tuple[dict[str, str], ...]:
    """Convert a prompt of verifiers, a text or messages, to messages.

    Raises:
        DataError: The row at `place` has no prompt, or one that is not text.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    found = tuple({"role": m["role"], "content": m["content"]} for m in messages or ())
    if not found or not all(isinstance(message["content"], str) for message in found):
        raise DataError(
            f"{place} must ask by text, and by text alone; its prompt is {prompt!r:.200}"
        )
    return found
