"""When the sampling of one prompt stops, and how many more draws to expect, by its counts.

`Stopping` has tables over (n₊, n₋), the correct and incorrect responses in a prompt's pool: arrays
of shape (B + 1, B + 1) for a budget of B draws, indexed `[positives, negatives]`. States beyond the
budget (n₊ + n₋ > B) count as stopped. `StoppingTables` are the same for a session, which looks them
up draw by draw.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.exits import ExitRule, check_is_rule, where_given_up, where_satisfied

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

MEANS = 32
"""Means of priors are rounded to multiples of 1 / this, within (0, 1); strengths to powers of 2."""


class Asking(Protocol):
    """The part of a schedule that says when the exit rule is asked (see `Schedule.asks`)."""

    def asks(self, processed: int) -> bool: ...


@dataclass(frozen=True)
class Stopping:
    """An exit rule, asked at certain counts, within a budget.

    Args:
        rule: When a prompt has been sampled enough, or is given up.
        schedule: After how many draws the rule is asked.
        budget: The most draws, B.
        prior: α and β of the pass rate's Beta distribution before the first draw.
        lost: Draws that are in no pool because they were lost; they use up the budget all the same.
    """

    rule: ExitRule
    schedule: Asking
    budget: int
    prior: tuple[float, float] = (1.0, 1.0)
    lost: int = 0

    def __post_init__(self) -> None:
        check_is_rule(self.rule)

    @cached_property
    def asked(self) -> Bools:
        """Whether the rule is asked, by n₊ + n₋, shape (B + 1,); always after the last draw."""
        processed = range(self.lost, self.lost + self.budget + 1)
        within = (0 < n <= self.budget for n in processed)
        asked = np.array(
            [
                fits and (n == self.budget or self.schedule.asks(n))
                for n, fits in zip(processed, within, strict=True)
            ]
        )
        if asked.dtype != bool:
            raise wrong_result(self.schedule, "asks", "True or False", self.schedule.asks(1))
        return asked

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the number of draws does not depend on what they show."""
        return bool(self.certain_need[0, 0] == self.expected_need[0, 0])

    @cached_property
    def satisfied(self) -> Bools:
        """Where the rule is satisfied, whether or not it is asked there."""
        return where_satisfied(self.rule, self._positives, self._positives.T)

    @cached_property
    def chance(self) -> Floats:
        """The probability that the rule will be satisfied within the budget; 1 where it is."""
        met = self.satisfied & self._asked
        return self._backward(np.where(met, 1.0, 0.0), met | self._spent)

    @cached_property
    def futile(self) -> Bools:
        """Where the rule gives the prompt up; nowhere for a rule that does not give up."""
        given_up: Bools = where_given_up(self.rule, self.chance)
        return given_up & self._asked & ~self.satisfied & ~self._spent

    @cached_property
    def stops(self) -> Bools:
        """Where sampling ends: rule satisfied, prompt given up, or budget spent."""
        return (self.satisfied & self._asked) | self.futile | self._spent

    @cached_property
    def expected_need(self) -> Floats:
        """How many more draws are expected until sampling stops; 0 where it has."""
        return self._backward(np.zeros(self._drawn.shape), self.stops, draws=1)

    @cached_property
    def certain_need(self) -> NDArray[np.int64]:
        """How many more draws are made at least until sampling stops, whatever their rewards."""
        least = self._backward(np.zeros(self._drawn.shape), self.stops, draws=1, least=True)
        return least.astype(int)

    def worthwhile(self, probability: float) -> NDArray[np.int64]:
        """How many more draws are each needed with at least `probability`; at least `certain_need`.

        A draw is needed if sampling has not stopped before it.
        """
        goes_on = np.where(self.stops, 0.0, 1.0)
        needed, count = goes_on.copy(), np.zeros(goes_on.shape, dtype=int)
        for _ in range(self.budget):
            enough = (needed >= probability) & (needed > 0)
            if not enough.any():
                break
            count += enough
            after = np.zeros_like(needed)
            after[:-1, :-1] = (
                self._correct[:-1, :-1] * needed[1:, :-1]
                + (1 - self._correct[:-1, :-1]) * needed[:-1, 1:]
            )
            needed = after * goes_on
        return np.maximum(count, self.certain_need)

    @cached_property
    def monotone(self) -> bool:
        """Whether the rule, once satisfied, stays so whatever else is drawn."""
        met = self.satisfied
        kept_by_correct = met[1:, :] | ~met[:-1, :] | self._beyond[1:, :]
        kept_by_incorrect = met[:, 1:] | ~met[:, :-1] | self._beyond[:, 1:]
        return bool(kept_by_correct.all() and kept_by_incorrect.all())

    @cached_property
    def _positives(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.budget + 1)[:, None], self.budget + 1, axis=1)

    @cached_property
    def _drawn(self) -> NDArray[np.int64]:
        return self._positives + self._positives.T

    @property
    def _asked(self) -> Bools:
        return np.pad(self.asked, (0, self.budget))[self._drawn]

    @property
    def _spent(self) -> Bools:
        return self._drawn + self.lost >= self.budget

    @property
    def _beyond(self) -> Bools:
        return self._drawn + self.lost > self.budget

    @cached_property
    def _correct(self) -> Floats:
        """The probability that the next response is, by [positives, negatives]."""
        alpha, beta = self.prior
        return (alpha + self._positives) / (alpha + beta + self._drawn)

    def _backward(
        self, values: Floats, known: Bools, draws: int = 0, least: bool = False
    ) -> Floats:
        """Fill in what is not `known`, from the budget's end.

        It is `draws` more than the values after one more response: on average, or the `least`.
        """
        values = values.copy()
        for drawn in range(self.budget - 1, -1, -1):
            up = np.arange(drawn + 1)
            down = drawn - up
            correct, incorrect = values[up + 1, down], values[up, down + 1]
            chance = self._correct[up, down]
            average = chance * correct + (1 - chance) * incorrect
            found = draws + (np.minimum(correct, incorrect) if least else average)
            values[up, down] = np.where(known[up, down], values[up, down], found)
        return values


class StoppingTables:
    """What `Stopping` says, as lists: a list answers ten times as fast as an array.

    Attributes:
        stays_satisfied: Whether a satisfied rule ends the prompt at once, whatever is drawn later.
    """

    def __init__(self, stopping: Stopping) -> None:
        self.stopping, self.budget = stopping, stopping.budget
        self.asked: list[bool] = stopping.asked.tolist()
        self.satisfied: list[list[bool]] = stopping.satisfied.tolist()
        self.futile: list[list[bool]] = stopping.futile.tolist()
        self.expected_need: list[list[float]] = stopping.expected_need.tolist()
        self.certain_need: list[list[int]] = stopping.certain_need.tolist()
        self._worthwhile: dict[float, list[list[int]]] = {}
        asked_always = all(self.asked[1 : self.budget - stopping.lost + 1])
        self.stays_satisfied = asked_always and stopping.monotone

    def worthwhile(self, probability: float) -> list[list[int]]:
        """`Stopping.worthwhile`."""
        if probability not in self._worthwhile:
            self._worthwhile[probability] = self.stopping.worthwhile(probability).tolist()
        return self._worthwhile[probability]

    def after_losing(self, lost: int) -> "StoppingTables":
        """Return the tables of the same prompt once so many of its draws were lost."""
        return stopping_tables(replace(self.stopping, lost=lost))


_built = lru_cache(maxsize=1024)(StoppingTables)


def stopping_tables(stopping: Stopping) -> StoppingTables:
    """Build the tables, or take those built before (if the rule can be hashed)."""
    try:
        return _built(stopping)
    except TypeError:
        return StoppingTables(stopping)


def tables_of_prompts(
    rule: ExitRule,
    schedule: Asking,
    most: int,
    count: int,
    priors: ArrayLike | None = None,
    budgets: ArrayLike | None = None,
) -> Iterable[StoppingTables]:
    """Make the tables of `count` prompts; those of equal budgets and rounded priors are shared."""
    budgets_P = _checked_budgets(budgets, count, most)
    priors_P2 = _checked_priors(priors, count)
    made: dict[tuple[int, float, float], StoppingTables] = {}
    for budget, (alpha, beta) in zip(budgets_P.tolist(), priors_P2.tolist(), strict=True):
        kind = (budget, alpha, beta)
        if kind not in made:
            made[kind] = stopping_tables(Stopping(rule, schedule, budget, (alpha, beta)))
        yield made[kind]


def _checked_budgets(budgets: ArrayLike | None, count: int, most: int) -> NDArray[np.integer]:
    budgets_P = np.full(count, most) if budgets is None else np.asarray(budgets)
    if budgets_P.shape != (count,) or not np.issubdtype(budgets_P.dtype, np.integer):
        raise ValueError(f"budgets must be {count} integers, got {budgets!r}")
    if not np.all((budgets_P >= 1) & (budgets_P <= most)):
        raise ValueError(
            f"budgets must lie between 1 and the schedule's {most} draws, "
            f"got {budgets_P.min()} to {budgets_P.max()}"
        )
    return budgets_P


def _checked_priors(priors: ArrayLike | None, count: int) -> NDArray[np.float64]:
    if priors is None:
        return np.ones((count, 2))
    priors_P2 = np.asarray(priors, dtype=float)
    if priors_P2.shape != (count, 2):
        raise ValueError(f"priors must have shape ({count}, 2), got {priors_P2.shape}")
    if not np.all((priors_P2 > 0) & np.isfinite(priors_P2)):
        raise ValueError("priors must be finite and above 0")
    # Rounded, so that prompts with similar ones share their tables.
    strength = priors_P2.sum(axis=1)
    mean = np.clip(np.rint(priors_P2[:, 0] / strength * MEANS), 0.5, MEANS - 0.5) / MEANS
    strength = 2.0 ** np.rint(np.log2(strength))
    return np.stack([mean * strength, (1 - mean) * strength], axis=1)
