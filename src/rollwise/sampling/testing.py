"""What any exit rule, schedule, objective or allocation must do; call it on yours in a test.

    from rollwise.sampling.testing import check_exit_rule

    def test_my_rule():
        check_exit_rule(MyRule(positives=3))

Each check raises an `AssertionError` that says what is wrong. They need no test framework.
"""

import pickle
import warnings
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.draws import Draw
from rollwise.sampling.exits import (
    Balanced,
    ExitRule,
    FixedCount,
    as_exit_rule,
    where_satisfied,
)
from rollwise.sampling.objectives import Objective
from rollwise.sampling.pool import Pool
from rollwise.sampling.schedules import Schedule, Streamed
from rollwise.sampling.selection import select_group
from rollwise.sampling.session import RolloutSession

PROMPTS = 7
"""Prompts of the sessions that the checks run."""


def check_exit_rule(rule: Any) -> None:
    """Check an exit rule: its answers, for single counts and arrays, and its pools.

    It warns of a rule that one more response of either kind makes unsatisfied again, as with
    `positives + negatives == 5`: a schedule of rounds may draw past such counts.

    Args:
        rule: An `ExitRule`, or an object that has `satisfied` alone.
    """
    _check_value(rule)
    _check_answers(as_exit_rule(rule))
    _check_order_of_arrival(rule, Streamed(12))


def check_schedule(schedule: Schedule) -> None:
    """Check a schedule: its budget, that all prompts end, and that timing changes no pool.

    Args:
        schedule: One with at most a few hundred draws of a prompt.
    """
    _check_value(schedule)
    most = schedule.max_samples
    assert isinstance(most, int), f"max_samples must be an integer, got {most!r}"
    assert most >= 1, f"max_samples must be at least 1, got {most}"
    for rule in (FixedCount(most), Balanced(1, 1)):
        _check_order_of_arrival(rule, schedule)
    session = _play(RolloutSession(range(PROMPTS), FixedCount(most), schedule), Random(0))
    drawn = {len(pool) for pool in session.pools.values()}
    assert drawn == {most}, f"a rule that takes all {most} draws got {sorted(drawn)}"
    session = _play(RolloutSession(range(PROMPTS), Balanced(1, 1), schedule), Random(0))
    assert not session.surplus, (
        "without a number of slots only draws that are certain to be needed may come: "
        f"{session.surplus} were surplus"
    )
    _check_total_draws(schedule)


def check_objective(objective: Objective) -> None:
    """Check an objective: shape, finite values, untouched inputs, and groups of equal rewards."""
    _check_value(objective)
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
    """Check an allocation: whole counts between its limits, near its mean, the same each time.

    Args:
        allocation: With `counts(pass_rates)`, `mean_draws`, `minimum` and `maximum`.
    """
    _check_value(allocation)
    rates_P = np.array([0.05, 0.2, 0.5, 0.8, 0.95, np.nan])
    counts_P = allocation.counts(rates_P)
    assert np.issubdtype(counts_P.dtype, np.integer), f"counts must be integers, got {counts_P}"
    assert counts_P.shape == rates_P.shape, f"counts must have shape (6,), got {counts_P.shape}"
    least, most = counts_P.min(), counts_P.max()
    assert least >= 0, f"counts must be at least 0, got {least}"
    assert most <= allocation.maximum, f"counts must be at most {allocation.maximum}, got {most}"
    expected = round(allocation.mean_draws * len(rates_P))
    assert counts_P.sum() <= expected, f"{expected} draws were to share out, got {counts_P.sum()}"
    assert np.array_equal(allocation.counts(rates_P), counts_P), "a second call gave other counts"


def _check_value(plugin: Any) -> None:
    """Check that it can be sent to another process and stays equal to itself."""
    name = type(plugin).__name__
    try:
        copy = pickle.loads(pickle.dumps(plugin))
    except Exception as error:
        raise AssertionError(f"{name} must be picklable: {error}") from error
    kind: Any = type(plugin)
    assert kind.__repr__ is not object.__repr__, (
        f"{name} is no dataclass: put `@dataclass(frozen=True)` above the class"
    )
    assert repr(copy) == repr(plugin), f"pickled, {plugin!r} became {copy!r}"


def _check_answers(rule: ExitRule) -> None:
    positives, negatives = np.indices((9, 9))
    one_by_one = np.array([[_answer(rule, n, m) for m in range(9)] for n in range(9)])
    try:
        table = np.asarray(rule.satisfied(positives, negatives))
    except (TypeError, ValueError):  # a rule for single counts alone
        table = where_satisfied(rule, positives, negatives)
    assert table.dtype == np.bool_, (
        f"satisfied must give booleans for arrays of counts, got {table.dtype}"
    )
    assert table.shape == (9, 9), (
        "satisfied must keep the arrays' shape: for positives and negatives of shape (9, 9) it "
        f"must give an array of that shape, got shape {table.shape}"
    )
    for n, m in np.argwhere(table != one_by_one):
        raise AssertionError(
            f"satisfied({n}, {m}) is {one_by_one[n, m]}, but in an array it is {table[n, m]}"
        )
    _check_chances(rule)
    if rule.looks_at_rewards:
        for rewards in ([0.0], [1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.5, 1.0]):
            _check_rewards(rule, rewards)
    else:
        _warn_of_passing(table)


def _answer(rule: ExitRule, positives: int, negatives: int) -> bool:
    """Ask a rule about single counts; none at all are also asked about."""
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


def _check_chances(rule: ExitRule) -> None:
    gives_up = np.asarray(rule.gives_up(np.linspace(0, 1, 11)))
    assert gives_up.dtype == np.bool_, f"gives_up must give booleans, got {gives_up.dtype}"
    assert gives_up.shape == (11,), f"gives_up must keep the array's shape, got {gives_up.shape}"
    assert np.all(np.diff(gives_up.astype(int)) <= 0), "gives_up must not prefer better chances"


def _check_rewards(rule: ExitRule, given: list[float]) -> None:
    rewards = np.array(given)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # NaN compares as False, unnoticed
            answer = rule.satisfied_by(rewards)
    except RuntimeWarning as warning:
        raise AssertionError(
            f"satisfied_by({given}) computes a value that is not finite: {warning}"
        ) from warning
    assert isinstance(answer, bool | np.bool_), (
        f"satisfied_by({given}) must be True or False, got {answer!r}"
    )
    assert rewards.tolist() == given, "satisfied_by must not change the rewards"


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


def _check_order_of_arrival(rule: Any, schedule: Schedule) -> None:
    """Check that pools are those of one draw after another, whatever the slots and the order."""
    pools = []
    for slots, seed in ((1, 0), (3, 1), (50, 2), (None, 3)):
        session = _play(RolloutSession(range(PROMPTS), rule, schedule), Random(seed), slots)
        found = [(pool.rewards.tolist(), pool.exit_reason) for pool in session.pools.values()]
        pools.append(found)
        sizes = [len(rewards) for rewards, _ in found]
        assert max(sizes) <= schedule.max_samples, (
            f"a prompt may have {schedule.max_samples} draws, one got {max(sizes)}"
        )
    assert all(found == pools[0] for found in pools), "pools depend on the order of arrival"


def _check_total_draws(schedule: Schedule) -> None:
    """Check that each prompt gets a draw where the batch has few, those added later as well."""
    total = PROMPTS + 5
    for slots in (None, 1, 3):
        most = schedule.max_samples
        session = RolloutSession(range(PROMPTS), FixedCount(most), schedule, total_draws=total)
        in_flight = session.next_draws(PROMPTS + 2)
        if len({draw.key for draw in in_flight}) == PROMPTS:
            session.add([PROMPTS, PROMPTS + 1, PROMPTS + 2])
        _play(session, Random(0), slots, in_flight)
        sizes = [len(pool) for pool in session.pools.values()]
        assert sum(sizes) + session.surplus <= total, f"{total} draws were allowed, got {sizes}"
        assert min(sizes) >= 1, f"each prompt must get a draw, they got {sizes}"


def _play(
    session: RolloutSession,
    random: Random,
    slots: int | None = None,
    in_flight: list[Draw] | None = None,
) -> RolloutSession:
    """Sample to the end; draws arrive in random order, their rewards follow from their seeds."""
    in_flight = in_flight or []
    while not session.done:
        free = None if slots is None else slots - len(in_flight)
        if free is None or free > 0:
            in_flight += session.next_draws(free)
        assert in_flight, (
            "nothing is in flight and no draw is handed out, but prompts have not ended"
        )
        draw = in_flight.pop(random.randrange(len(in_flight)))
        reward = round(Random(draw.seed).random(), 2)
        surplus = session.record(draw, reward)
        in_flight[:] = [draw for draw in in_flight if draw not in surplus]
    return session
