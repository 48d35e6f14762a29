"""When the sampling of one prompt stops, and how many more draws to expect, by its counts.

`Stopping` has tables over (n₊, n₋), the correct and incorrect responses in a prompt's pool: arrays
of shape (B + 1, B + 1) for a budget of B draws, indexed `[positives, negatives]`. States beyond the
budget (n₊ + n₋ > B) count as stopped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.exits import ExitRule, check_is_rule, where_satisfied

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

MEANS = 32
"""Means of priors are rounded to multiples of 1 / this."""


class Asking(Protocol):
    """The part of a schedule that says when the exit rule is asked (see `Schedule.asks`)."""

    def asks(self, processed: int) -> bool: ...


@dataclass(frozen=True)
class Stopping:
    """An exit rule, asked at certain counts, within a budget.

    Args:
        rule: When a prompt has been sampled enough.
        schedule: After how many draws the rule is asked.
        budget: The most draws, B.
        prior: α and β of the pass rate's Beta distribution before the first draw.
        lost: Draws that were lost; they count against the budget but are in no pool.
        give_up_below: Give the prompt up where `chance` is below this.
    """

    rule: ExitRule
    schedule: Asking
    budget: int
    prior: tuple[float, float] = (1.0, 1.0)
    lost: int = 0
    give_up_below: float = 0.0

    def __post_init__(self) -> None:
        check_is_rule(self.rule)

    @cached_property
    def asked(self) -> Bools:
        """Whether the rule is asked, by n₊ + n₋, shape (B + 1,); always after the last draw."""
        draws = range(self.lost, self.lost + self.budget + 1)
        asked = [
            0 < n <= self.budget and (n == self.budget or self.schedule.asks(n)) for n in draws
        ]
        if not all(isinstance(answer, bool | np.bool_) for answer in asked):
            raise wrong_result(self.schedule, "asks", "True or False", self.schedule.asks(1))
        return np.array(asked)

    @cached_property
    def satisfied(self) -> Bools:
        """Where the rule is satisfied, whether or not it is asked there."""
        return where_satisfied(self.rule, *np.indices((self.budget + 1, self.budget + 1)))

    @cached_property
    def chance(self) -> Floats:
        """The probability that the rule will be satisfied within the budget; 1 where it is."""
        met = self.satisfied & self._asked
        return self._backward(np.where(met, 1.0, 0.0), met | self._spent)

    @cached_property
    def futile(self) -> Bools:
        """Where the prompt is given up."""
        given_up: Bools = self.chance < self.give_up_below
        return given_up & self._asked & ~self.satisfied & ~self._spent

    @cached_property
    def stops(self) -> Bools:
        """Where sampling ends: rule satisfied, prompt given up, or budget spent."""
        return (self.satisfied & self._asked) | self.futile | self._spent

    @cached_property
    def expected_draws(self) -> Floats:
        """How many more draws are expected until sampling stops; 0 where it has."""
        return self._backward(np.zeros(self.stops.shape), self.stops, draws=1)

    @cached_property
    def minimum_draws(self) -> Counts:
        """The fewest further draws until sampling stops, whatever their rewards."""
        fewest = self._backward(np.zeros(self.stops.shape), self.stops, draws=1, least=True)
        return fewest.astype(int)

    def likely_draws(self, probability: float) -> Counts:
        """How many more draws are each needed with at least `probability`, or are certain to be.

        A draw is needed if sampling has not stopped before it.
        """
        if probability not in self._likely:
            continues = np.where(self.stops, 0.0, 1.0)
            needed, count = continues.copy(), np.zeros(continues.shape, dtype=int)
            correct = self._correct[:-1, :-1]
            for _ in range(self.budget):
                enough = (needed >= probability) & (needed > 0)
                if not enough.any():
                    break
                count += enough
                after = np.zeros_like(needed)
                after[:-1, :-1] = correct * needed[1:, :-1] + (1 - correct) * needed[:-1, 1:]
                needed = after * continues
            self._likely[probability] = np.maximum(count, self.minimum_draws)
        return self._likely[probability]

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the number of draws does not depend on what they show."""
        return bool(np.isclose(self.minimum_draws[0, 0], self.expected_draws[0, 0], rtol=1e-9))

    @cached_property
    def weight(self) -> float:
        """1/E[N], times the fewest draws that end a prompt unless it is given up."""
        fewest = shared(replace(self, give_up_below=0.0)).minimum_draws[0, 0]
        return float(fewest / self.expected_draws[0, 0])

    @cached_property
    def _likely(self) -> dict[float, Counts]:
        return {}

    @cached_property
    def _drawn(self) -> Counts:
        return np.add.outer(np.arange(self.budget + 1), np.arange(self.budget + 1))

    @property
    def _asked(self) -> Bools:
        return np.pad(self.asked, (0, self.budget))[self._drawn]

    @property
    def _spent(self) -> Bools:
        return self._drawn + self.lost >= self.budget

    @cached_property
    def _correct(self) -> Floats:
        """The probability that the next response is correct, by [positives, negatives]."""
        alpha, beta = self.prior
        return (alpha + np.arange(self.budget + 1)[:, None]) / (alpha + beta + self._drawn)

    def _backward(
        self, values: Floats, known: Bools, draws: int = 0, least: bool = False
    ) -> Floats:
        """Fill in what is not `known`, from the budget's end.

        A value is `draws` more than those after one more response: their average, or the `least`.
        """
        for drawn in range(self.budget - 1, -1, -1):
            up = np.arange(drawn + 1)
            down = drawn - up
            correct, incorrect = values[up + 1, down], values[up, down + 1]
            chance = self._correct[up, down]
            average = chance * correct + (1 - chance) * incorrect
            found = draws + (np.minimum(correct, incorrect) if least else average)
            values[up, down] = np.where(known[up, down], values[up, down], found)
        return values


@lru_cache(maxsize=1024)
def _first_equal(stopping: Stopping) -> Stopping:
    return stopping


def shared(stopping: Stopping) -> Stopping:
    """Return the first equal stopping, with its tables; itself if its rule has no hash."""
    try:
        return _first_equal(stopping)
    except TypeError:
        return stopping


def stopping_of_prompts(
    like: Stopping, count: int, priors: ArrayLike | None, budgets: ArrayLike | None
) -> Iterable[Stopping]:
    """Yield the stopping of each prompt; equal budgets and rounded priors share their tables.

    `like` is that of one with the largest budget; `priors` has shape (P, 2), `budgets` (P,).
    """
    budgets_P = np.full(count, like.budget) if budgets is None else np.asarray(budgets)
    if budgets_P.shape != (count,) or not np.issubdtype(budgets_P.dtype, np.integer):
        raise ValueError(f"budgets must be {count} integers, got {budgets!r}")
    if not np.all((budgets_P >= 1) & (budgets_P <= like.budget)):
        raise ValueError(
            f"budgets must lie between 1 and the schedule's {like.budget} draws, "
            f"got {budgets_P.min()} to {budgets_P.max()}"
        )
    priors_P2 = np.ones((count, 2)) if priors is None else np.asarray(priors, dtype=float)
    if priors_P2.shape != (count, 2):
        raise ValueError(f"priors must have shape ({count}, 2), got {priors_P2.shape}")
    if not np.all((priors_P2 > 0) & np.isfinite(priors_P2)):
        raise ValueError("priors must be finite and above 0")
    made: dict[tuple[int, float, float], Stopping] = {}
    for budget, (alpha, beta) in zip(budgets_P.tolist(), rounded(priors_P2).tolist(), strict=True):
        kind = (budget, alpha, beta)
        if kind not in made:
            made[kind] = shared(replace(like, budget=budget, prior=(alpha, beta)))
        yield made[kind]


def rounded(priors_P2: Floats) -> Floats:
    """Round α and β: the mean to multiples of 1/32 within (0, 1), α + β to powers of 2."""
    strength = priors_P2.sum(axis=1)
    mean = np.clip(np.rint(priors_P2[:, 0] / strength * MEANS), 0.5, MEANS - 0.5) / MEANS
    strength = 2.0 ** np.rint(np.log2(strength))
    return np.stack([mean * strength, (1 - mean) * strength], axis=1)
