"""What becomes of a draw: a completion, an episode, or nothing; and what rollouts cost."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

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
    """A draw that the engine could not complete, and why.

    Attributes:
        tokens: What the model had drawn for it; 0 if the engine cannot tell.
        final: Trying again is of no use.
    """

    draw: Draw
    reason: str
    tokens: int = 0
    final: bool = False


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


@dataclass
class RolloutCost:
    """What rollouts cost; costs add up with `+`.

    Attributes:
        sampling: Seconds of generation, without those of grading.
        grading: Seconds spent waiting for rewards while nothing was generated.
        tokens: Tokens of all responses, including surplus and cancelled ones and failed attempts.
        failed_tokens: Those of failed attempts.
    """

    sampling: float = 0.0
    grading: float = 0.0
    tokens: int = 0
    failed_tokens: int = 0

    def __add__(self, other: "RolloutCost") -> "RolloutCost":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return RolloutCost(*(own + others for own, others in pairs))
