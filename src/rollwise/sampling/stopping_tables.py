"""`Stopping` as a session looks it up, draw by draw; and one `Stopping` for each prompt."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.exits import ExitRule, as_exit_rule
from rollwise.sampling.stopping import Asking, Stopping

MEANS = 32
"""Means of priors are rounded to multiples of 1 / this, so that prompts share tables."""


@dataclass(frozen=True, eq=False)
class StoppingTables:
    """What `Stopping` says, as lists: a list answers ten times as fast as an array.

    Attributes:
        stopping: What it is of.
        budget: The most draws.
        asked: Whether the rule is asked, by n₊ + n₋.
        satisfied, futile: Whether it is satisfied, whether it gives up, by [positives][negatives].
        expected_need: More draws that are expected until sampling stops.
        certain_need: More draws until sampling stops at least.
        stays_satisfied: Whether the counts decide, and a satisfied rule ends the prompt at once,
            whatever is drawn later.
        rewards_rule: The exit rule, if it looks at rewards; `satisfied` is then its guess.
    """

    stopping: Stopping
    budget: int
    asked: list[bool]
    satisfied: list[list[bool]]
    futile: list[list[bool]]
    expected_need: list[list[float]]
    certain_need: list[list[int]]
    stays_satisfied: bool
    rewards_rule: ExitRule | None

    def after_losing(self, lost: int) -> "StoppingTables":
        """Return the tables of the same prompt once so many of its draws were lost."""
        return stopping_tables(replace(self.stopping, lost=lost))


def stopping_tables(stopping: Stopping) -> StoppingTables:
    """Build the tables, or take them from those built before (if the rule can be hashed)."""
    try:
        return _built(stopping)
    except TypeError:
        return _built.__wrapped__(stopping)


@lru_cache(maxsize=1024)
def _built(stopping: Stopping) -> StoppingTables:
    rule = as_exit_rule(stopping.rule)
    asked_always = bool(stopping.asked[1 : stopping.budget - stopping.lost + 1].all())
    return StoppingTables(
        stopping=stopping,
        budget=stopping.budget,
        asked=stopping.asked.tolist(),
        satisfied=stopping.satisfied.tolist(),
        futile=stopping.futile.tolist(),
        expected_need=stopping.expected_need.tolist(),
        certain_need=stopping.certain_need.tolist(),
        stays_satisfied=asked_always and stopping.monotone and not rule.looks_at_rewards,
        rewards_rule=rule if rule.looks_at_rewards else None,
    )


@lru_cache(maxsize=1024)
def worthwhile_table(tables: StoppingTables, probability: float) -> list[list[int]]:
    """`Stopping.worthwhile` as lists, by [positives][negatives]."""
    counts: list[list[int]] = tables.stopping.worthwhile(probability).tolist()
    return counts


def tables_of_prompts(
    rule: ExitRule,
    schedule: Asking,
    most: int,
    count: int,
    priors: ArrayLike | None = None,
    budgets: ArrayLike | None = None,
) -> Iterable[StoppingTables]:
    """Make the tables of `count` prompts; those of equal budgets and rounded priors are shared.

    Args:
        rule: When a prompt has been sampled enough, or is given up.
        schedule: After how many draws the rule is asked.
        most: The most draws of a prompt.
        count: P, the number of prompts.
        priors: α and β of each prompt, shape (P, 2); by default 1 and 1.
        budgets: The most draws of each prompt, shape (P,); by default `most`.

    Raises:
        ValueError: Priors or budgets of another shape, or out of their range.
    """
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
    return rounded_priors(priors_P2)


def rounded_priors(priors: ArrayLike) -> NDArray[np.float64]:
    """Round priors (α, β), shape (P, 2), so that prompts with similar ones share their tables.

    The mean goes to a multiple of 1/32 (not to 0 or 1), the strength α + β to a power of 2.
    """
    priors_P2 = np.asarray(priors, dtype=float)
    strength = priors_P2.sum(axis=1)
    mean = np.clip(np.rint(priors_P2[:, 0] / strength * MEANS), 0.5, MEANS - 0.5) / MEANS
    strength = 2.0 ** np.rint(np.log2(strength))
    return np.stack([mean * strength, (1 - mean) * strength], axis=1)
