"""The contract of an engine: from a draw to a response."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rollwise.errors import PluginError
from rollwise.sampling import Draw
from rollwise.step.response import Response

FORMER = (
    "engines have no `submit`, `wait`, `cancel` and `free_slots` any more, and there is no "
    "`Completion`: write `async def complete(self, draw, prompt)`, which returns a "
    "`rollwise.engines.Response` or raises `LostDraw`, and `slots` if only so many draws shall be "
    "in flight; a draw is cancelled by cancelling its task"
)
"""What to change in an engine that was written for an earlier version."""


class Engine(ABC):
    """Completes draws, many at a time; also a context manager.

    A response must depend only on the weights, the prompt and the draw's seed, not on what else is
    drawn beside it. To write an engine, inherit from this class and define `complete` and
    `load_weights`; the others do nothing by default.

    Attributes:
        slots: The most draws that it works on at a time; None if there is no bound. Further draws
            wait.
        lost_tokens: Tokens that were drawn and lost, because memory ran out, so that they had to be
            drawn again.
    """

    slots: int | None = None
    lost_tokens = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "submit") and cls.complete is Engine.complete:
            raise PluginError(f"{cls.__module__}:{cls.__qualname__}: {FORMER}")

    @abstractmethod
    async def complete(self, draw: Draw, prompt: Sequence[int]) -> Response:
        """Draw a response to a prompt, given by its token ids.

        Cancelling the task cancels the draw. An engine that knows how many tokens it had drawn then
        raises `LostDraw` with their number.

        Raises:
            LostDraw: The draw could not be completed, and shall be drawn again.
            Exception: Anything else ends the command.
        """

    @abstractmethod
    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Use the learner's weights (name -> tensor) from now on; called between steps."""

    def sleep(self) -> None:
        """Free device memory until `load_weights` or the next draw; no draw is in flight."""
        return None

    def limit_slots(self, slots: int) -> None:
        """Work on no more draws at a time: so many had room when memory ran out."""
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
