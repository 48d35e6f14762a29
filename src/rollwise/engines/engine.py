"""What the loop asks of an engine: draws in, completions out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling import Draw

Prompts = Mapping[Any, Sequence[int]]
"""Prompt -> its token ids."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A response that an engine has drawn.

    Attributes:
        draw: What it was drawn for.
        tokens: Its T token ids, the end-of-sequence token included.
        logprobs: The log-probability of each token where it was drawn, shape (T,), at the
            temperature it was drawn at.
        text: The tokens as text, without special tokens.
        truncated: Whether it was cut at the limit of new tokens.
    """

    draw: Draw
    tokens: list[int]
    logprobs: NDArray[np.float32]
    text: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class LostDraw:
    """A draw that the engine could not complete, and why."""

    draw: Draw
    reason: str


class Engine(Protocol):
    """Turns draws into responses, in its own time and order.

    A response must depend on the weights, the prompt and the draw's seed alone, whatever else is
    drawn beside it.
    """

    @property
    def free_slots(self) -> int | None:
        """How many further draws it could begin now; None where it knows no bound."""
        ...

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; `prompts` holds at least the prompts that they are for."""
        ...

    def wait(self) -> Sequence[Completion | LostDraw]:
        """Return what is done, at least one if anything is under way; [] if nothing is."""
        ...

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; those that are done or unknown are passed over.

        Returns the tokens that had been drawn of them, as far as the engine knows.
        """
        ...

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Take over the learner's weights (name -> tensor) for all further draws."""
        ...
