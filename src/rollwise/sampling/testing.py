"""What any exit rule, schedule, objective or allocation must do; call it on yours in a test.

    from rollwise.sampling.testing import check_exit_rule

    def test_my_rule():
        check_exit_rule(MyRule(positives=3))

Each check raises an `AssertionError` that says what is wrong. They need no test framework.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.exits import ExitRule, check_is_rule, where_satisfied
from rollwise.sampling.objectives import Objective
from rollwise.sampling.pool import Pool
from rollwise.sampling.schedules import Streamed
from rollwise.sampling.selection import select_group
from rollwise.sampling.testing_sessions import check_order_of_arrival, check_schedule, check_value

__all__ = ["check_allocation", "check_exit_rule", "check_objective", "check_schedule"]


def check_exit_rule(rule: Any) -> None:
    """Check an exit rule: its answers, and its pools.

    It warns of a rule that one more response of either kind makes unsatisfied again, as with
    `positives + negatives == 5`: a schedule of rounds may draw past such counts.
    """
    check_value(rule)
    check_is_rule(rule)
    _check_answers(rule)
    check_order_of_arrival(rule, Streamed(12))


def check_objective(objective: Objective) -> None:
    """Check an objective: shape, finite values, untouched inputs, and groups of equal rewards."""
    check_value(objective)
    rng = np.random.default_rng(0)
    for rewards in (rng.integers(0, 2, 12).astype(float), rng.random(12), np.zeros(6), np.ones(6)):
        pool = Pool("a", rewards)
        group, again = select_group(pool, 4), select_group(pool, 4)
        values = objective.advantages(pool, group)
        assert np.shape(values) == (4,), f"advantages must have shape (4,), got {np.shape(values)}"
        assert np.all(np.isfinite(values)), f"advantages must be finite, got {values}"
        assert pool.rewards.tolist() == rewards.tolist(), "the pool's rewards were changed"
        assert group.rewards.tolist() == again.rewards.tolist(), "the group's rewards were changed"
        if objective.needs_variance and pool.zero_variance:
            said = f"rewards that are all {rewards[0]} must give 0, got {values}"
            assert not np.any(values), said


def check_allocation(allocation: Any) -> None:
    """Check an allocation: whole counts between its limits, near its mean, the same each time."""
    check_value(allocation)
    rates_P = np.array([0.05, 0.2, 0.5, 0.8, 0.95, np.nan])
    counts_P = allocation.counts(rates_P)
    assert np.issubdtype(counts_P.dtype, np.integer), f"counts must be integers, got {counts_P}"
    assert counts_P.shape == rates_P.shape, f"counts must have shape (6,), got {counts_P.shape}"
    assert counts_P.min() >= 0, f"counts must be at least 0, got {counts_P}"
    assert counts_P.max() <= allocation.maximum, (
        f"counts must be at most {allocation.maximum}, got {counts_P}"
    )
    expected = round(allocation.mean_draws * len(rates_P))
    assert counts_P.sum() <= expected, f"{expected} draws were to share out, got {counts_P.sum()}"
    assert np.array_equal(allocation.counts(rates_P), counts_P), "a second call gave other counts"


def _check_answers(rule: ExitRule) -> None:
    positives, negatives = np.indices((9, 9))
    one_by_one = np.array([[_answer(rule, n, m) for m in range(9)] for n in range(9)])
    try:
        table = np.asarray(rule.satisfied(positives, negatives))
    except (TypeError, ValueError):  # a rule for single counts alone
        table = where_satisfied(rule, positives, negatives)
    assert table.dtype == np.bool_ and table.shape == (9, 9), (
        "satisfied must give booleans for arrays of counts, and keep the arrays' shape: of shape "
        f"(9, 9) for counts of shape (9, 9), got {table.dtype} of shape {table.shape}"
    )
    for n, m in np.argwhere(table != one_by_one):
        raise AssertionError(
            f"satisfied({n}, {m}) is {one_by_one[n, m]}, but in an array it is {table[n, m]}"
        )
    gives_up = np.asarray(rule.gives_up(np.linspace(0, 1, 11)))
    assert gives_up.dtype == np.bool_ and gives_up.shape == (11,), (
        f"gives_up must give booleans of the array's shape, got {gives_up!r}"
    )
    assert np.all(np.diff(gives_up.astype(int)) <= 0), "gives_up must not prefer better chances"
    _warn_of_passing(table)


def _answer(rule: ExitRule, positives: int, negatives: int) -> bool:
    call = f"satisfied({positives}, {negatives})"
    try:
        answer = rule.satisfied(positives, negatives)
    except ZeroDivisionError as error:
        raise AssertionError(
            f"{call} divides by zero: a rule is also asked about counts of 0, before any response "
            "is there"
        ) from error
    assert isinstance(answer, bool | np.bool_), f"{call} must be True or False, got {answer!r}"
    return bool(answer)


def _warn_of_passing(satisfied: NDArray[np.bool_]) -> None:
    """Warn of counts that are enough, but not with one more response, whatever it is."""
    passed = np.argwhere(satisfied[:-1, :-1] & ~satisfied[1:, :-1] & ~satisfied[:-1, 1:])
    if len(passed):
        n, m = passed[0]
        warnings.warn(
            f"satisfied({n}, {m}) is True, but False after one more response of either kind. A "
            "schedule of rounds asks at the end of a round alone, and may draw past these counts; "
            "`>=` in place of `==` is safe",
            stacklevel=4,
        )
