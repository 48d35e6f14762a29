"""The responses drawn for one prompt, in draw order, and its draws in flight."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.draws import Draw, ExitReason, Key, draw_seed
from rollwise.sampling.score import Score, acc_of
from rollwise.sampling.stopping import Stopping, shared

POSITIVE_THRESHOLD = 0.7
"""A response is correct if its reward, or the `acc` of its `Score`, is above this (the reference
implementation's value)."""

VARIANCE_TOLERANCE = 1e-6
"""Rewards that differ by no more than this carry no signal."""

Graded = tuple[float, Any] | None
"""What came of a draw: its reward and response, or None if it was lost."""


def has_zero_variance(rewards: ArrayLike) -> bool:
    """Return whether all `rewards` (any shape) are equal, up to rounding; true if empty.

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
        positive_threshold: A response is correct if its reward, or its `Score`'s `acc`, is above.

    Attributes:
        scores: The rewards as they were taken, plain numbers or `Score`s, in draw order.
        positives: n₊, the number of correct responses.
        exit_reason: Why sampling ended; None while it continues.
        stopping: The rule and budget by which sampling stopped, if a session sampled it.
        prior: α and β of the Beta distribution that was believed before the first draw, if known.

    Raises:
        ValueError: Not one response for each reward, or a reward that is not finite.
    """

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
        self.scores: list[float] = []
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
        return len(self.scores)

    def __repr__(self) -> str:
        ended = self.exit_reason or "open"
        return f"Pool({self.key!r}: {self.positives} correct of {len(self)} drawn, {ended})"

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The rewards in draw order, shape (N,)."""
        return np.array(self.scores, dtype=float)

    @property
    def negatives(self) -> int:
        """n₋, the number of incorrect responses."""
        return len(self.scores) - self.positives

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Which responses are correct, shape (N,)."""
        return np.array([*map(acc_of, self.scores)], dtype=float) > self.positive_threshold

    @property
    def zero_variance(self) -> bool:
        """Whether all rewards are equal, so that the prompt carries no signal."""
        return has_zero_variance(self.scores)

    def take(self, reward: float, response: Any = None) -> None:
        """Add the next response in draw order; its reward must be finite."""
        reward = reward if isinstance(reward, Score) else float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"a reward of prompt {self.key!r} must be finite, got {reward}")
        self.scores.append(reward)
        self.responses.append(response)
        self.positives += acc_of(reward) > self.positive_threshold


@dataclass(eq=False, slots=True)
class SampledPrompt:
    """A prompt in a session, from its first draw to its exit.

    Attributes:
        stopping: Where sampling stops, by the counts in the pool.
        position: Its place in the session, from 0.
        issued: Draws handed out.
        outstanding: The number of draws in flight, and of those that failed and will be repeated.
        processed: Draws that are in the pool or lost, as are all draws before them.
        waiting: What came of draws that wait for an earlier one, by index.
        known_correct: Correct responses, those that wait included; likewise `known_incorrect`.
    """

    pool: Pool
    stopping: Stopping
    position: int
    seed: int
    step: int
    issued: int = 0
    in_flight: dict[int, Draw] = field(default_factory=dict)
    outstanding: int = 0
    processed: int = 0
    waiting: dict[int, Graded] = field(default_factory=dict)
    known_correct: int = 0
    known_incorrect: int = 0

    @property
    def ended(self) -> bool:
        """Whether its sampling has ended."""
        return self.pool.exit_reason is not None

    @property
    def limit(self) -> int:
        """Draws with this index or a higher one are not needed."""
        return self.processed if self.ended else self.stopping.budget

    def issue(self) -> Draw:
        """Hand out its next draw."""
        key, index = self.pool.key, self.issued
        draw = Draw(key, index, draw_seed(self.seed, self.step, key, index))
        self.in_flight[index] = draw
        self.issued += 1
        self.outstanding += 1
        return draw

    def receive(self, index: int, graded: Graded) -> list[Draw]:
        """Take in what came of a draw, in draw order; returns the draws that are now surplus."""
        self.outstanding -= 1
        if graded is not None:
            correct = acc_of(graded[0]) > self.pool.positive_threshold
            self.known_correct += correct
            self.known_incorrect += not correct
        self.waiting[index] = graded
        while self.processed in self.waiting:
            taken = self.waiting.pop(self.processed)
            self.processed += 1
            if taken is None:
                self.stopping = shared(replace(self.stopping, lost=self.stopping.lost + 1))
            else:
                self.pool.take(*taken)
            if reason := self.reason_to_end():
                return self.end(reason)
        return []

    def end(self, reason: ExitReason) -> list[Draw]:
        """End its sampling; what waits is dropped, and what is in flight is returned."""
        self.pool.exit_reason = reason
        self.waiting.clear()
        surplus = [self.in_flight[index] for index in sorted(self.in_flight)]
        self.in_flight.clear()
        return surplus

    def reason_to_end(self, last: bool = False) -> ExitReason | None:
        """Return why sampling ends with this pool (`last`: it must end); None if it continues."""
        state = self.pool.positives, self.pool.negatives
        last = last or self.processed >= self.stopping.budget
        if last or self.stopping.asked[len(self.pool)]:
            if self.stopping.satisfied[state]:
                return "satisfied"
            if self.stopping.futile[state]:
                return "futile"
        return "exhausted" if last else None
