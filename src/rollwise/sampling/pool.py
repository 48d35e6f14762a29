"""The responses drawn for one prompt, in draw order."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.draws import ExitReason, Key
from rollwise.sampling.stopping import Stopping

POSITIVE_THRESHOLD = 0.7
"""A response is correct if its reward is above this (the reference implementation's value)."""

VARIANCE_TOLERANCE = 1e-6
"""Rewards that differ by no more than this carry no signal."""


def has_zero_variance(rewards: ArrayLike) -> bool:
    """Say whether all `rewards` (any shape) are equal, up to rounding; true if empty.

    The range decides, not a standard deviation: that of equal floats need not come out as 0.
    """
    values = np.asarray(rewards, dtype=float)
    return values.size == 0 or float(np.ptp(values)) <= VARIANCE_TOLERANCE


class Pool:
    """Every response drawn for one prompt in one step, in draw order.

    Args:
        key: The prompt.
        rewards: Rewards already known, in draw order; `take` adds more.
        responses: What was drawn, one for each reward; anything, or None if it is not kept.
        positive_threshold: A response is correct if its reward is above this.

    Attributes:
        positives: n₊, the number of correct responses.
        exit_reason: Why sampling ended; None while it continues.
        stopping: The rule and budget by which sampling stopped, if a session sampled it.
        prior: α and β of the Beta distribution that was believed before the first draw, if known.
    """

    __slots__ = (
        "_rewards",
        "exit_reason",
        "key",
        "positive_threshold",
        "positives",
        "prior",
        "responses",
        "stopping",
    )

    def __init__(
        self,
        key: Key,
        rewards: ArrayLike = (),
        responses: Sequence[Any] | None = None,
        positive_threshold: float = POSITIVE_THRESHOLD,
    ) -> None:
        self.key = key
        self.positive_threshold = positive_threshold
        self.positives = 0
        self.responses: list[Any] = []
        self.exit_reason: ExitReason | None = None
        self.stopping: Stopping | None = None
        self.prior: tuple[float, float] | None = None
        self._rewards: list[float] = []
        known = np.asarray(rewards, dtype=float).tolist()
        responses = [None] * len(known) if responses is None else responses
        if len(responses) != len(known):
            raise ValueError(
                f"prompt {key!r}: each reward needs its response, got {len(known)} rewards and "
                f"{len(responses)} responses"
            )
        for reward, response in zip(known, responses, strict=True):
            self.take(reward, response)

    def __len__(self) -> int:
        return len(self._rewards)

    def __repr__(self) -> str:
        return (
            f"Pool({self.key!r}: {self.positives} correct of {len(self)} drawn, "
            f"{self.exit_reason or 'open'})"
        )

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The rewards in draw order, shape (N,)."""
        return np.array(self._rewards)

    @property
    def negatives(self) -> int:
        """n₋, the number of incorrect responses."""
        return len(self._rewards) - self.positives

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Which responses are correct, shape (N,)."""
        return self.rewards > self.positive_threshold

    @property
    def zero_variance(self) -> bool:
        """Whether all rewards are equal, so that the prompt carries no signal."""
        return has_zero_variance(self._rewards)

    def take(self, reward: float, response: Any = None) -> None:
        """Add the next response in draw order; its reward must be finite."""
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"a reward of prompt {self.key!r} must be finite, got {reward}")
        self._rewards.append(reward)
        self.responses.append(response)
        self.positives += reward > self.positive_threshold
