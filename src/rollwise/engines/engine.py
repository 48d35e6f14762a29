"""The contract of an engine: draws in, completions out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from rollwise.sampling import Draw
from rollwise.step.outcomes import Prompts, Result


class Engine(ABC):
    """Turns draws into responses, at any time and in any order; also a context manager.

    A response must depend only on the weights, the prompt and the draw's seed, not on what else is
    drawn beside it. To write an engine, inherit from this class and define the first five members;
    the others do nothing by default.
    """

    @property
    @abstractmethod
    def free_slots(self) -> int | None:
        """How many further draws it could begin now; None if there is no bound."""

    @abstractmethod
    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; `prompts` holds at least their prompts."""

    @abstractmethod
    def wait(self) -> Sequence[Result]:
        """Return what is done, at least one result if any draw is in flight; else []."""

    @abstractmethod
    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; those that are done or unknown are ignored.

        Returns the number of tokens already drawn for them; 0 if the engine cannot tell.
        """

    @abstractmethod
    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Use the learner's weights (name -> tensor) from now on; called between steps."""

    def sleep(self) -> None:
        """Free device memory until `load_weights` or the next draw; no draw is in flight."""
        return None

    def ignore_ends(self) -> bool:
        """Draw every response to its maximum length from now on; returns whether it can."""
        return False

    def close(self) -> None:
        """Release what the engine holds; a second call does nothing."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
