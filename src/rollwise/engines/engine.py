"""The contract of an engine: draws in, completions out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling import Draw
from rollwise.step.episodes import Episode

Prompts = Mapping[Any, Sequence[int]]
"""Prompt -> its token ids."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A response that an engine has drawn.

    Attributes:
        draw: The draw that it completes.
        tokens: Its T token ids, the end-of-sequence token included.
        logprobs: The log-probability of each token when it was drawn, shape (T,), at the
            temperature of sampling.
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
    """A draw that the engine could not complete.

    Attributes:
        draw: The draw.
        reason: Why.
        tokens: What the model had drawn for it; 0 if the engine cannot tell.
    """

    draw: Draw
    reason: str
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode(Episode):
    """An episode that an engine and an environment have played.

    Attributes:
        draw: The draw that it completes.
        text: What the model said last, for a grader.
        transcript: All that was said after the prompt, a line a turn, for people.
    """

    draw: Draw
    text: str
    transcript: str


Outcome = Completion | PlayedEpisode
"""What a draw became."""

Result = Outcome | LostDraw
"""The result of a draw."""


class Engine(Protocol):
    """Turns draws into responses, at any time and in any order.

    A response must depend only on the weights, the prompt and the draw's seed, not on what else is
    drawn beside it.

    An engine may have a method `continue_with(weights)` as well, which uses the learner's weights
    for all further tokens while draws in flight go on; `step.carry_over` needs it.

    It may also have `wake()`, called from another thread: a `wait` under way, or else the next one,
    returns soon, with [] if nothing is done.

    And it may have `lend_memory()`, which frees memory of the device until `load_weights` or the
    next draw; it is called before the learner learns, unless draws go on meanwhile.
    """

    @property
    def free_slots(self) -> int | None:
        """How many further draws it could begin now; None if there is no bound."""
        ...

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws; `prompts` holds at least the prompts that they are for."""
        ...

    def wait(self) -> Sequence[Result]:
        """Return what is done, at least one result if any draw is in flight; else []."""
        ...

    def cancel(self, draws: Iterable[Draw]) -> int:
        """Forget draws; those that are done or unknown are ignored.

        Returns the number of tokens already drawn for them; 0 if the engine cannot tell.
        """
        ...

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Use the learner's weights (name -> tensor) for all further draws."""
        ...
