"""Checks for any exit rule, schedule, objective or allocation; call them on yours in a test.

    from rollwise.sampling.testing import check_exit_rule

    def test_my_rule():
        check_exit_rule(MyRule(positives=3))

Each check raises an `AssertionError` that says what is wrong. They need no test framework.
"""

import pickle
from random import Random
from typing import Any

import numpy as np

from rollwise.sampling.draws import Draw
from rollwise.sampling.exits import Balanced, FixedCount, where_satisfied
from rollwise.sampling.objectives import Objective
from rollwise.sampling.pool import Pool
from rollwise.sampling.schedules import Schedule, Streamed
from rollwise.sampling.selection import select_group
from rollwise.sampling.session import RolloutSession

PROMPTS = 7
"""Prompts of the sessions that the checks run."""


def check_exit_rule(rule: Any) -> None:
    """Check an exit rule: its answers, and its pools."""
    check_value(rule)
    answers = {counts: rule.satisfied(*counts) for counts in np.ndindex(9, 9)}
    for counts, answer in answers.items():
        said = f"satisfied{counts} must be True or False, got {answer!r}"
        assert isinstance(answer, bool | np.bool_), said
    table = where_satisfied(rule, *np.indices((9, 9)))
    for counts, answer in answers.items():
        said = f"satisfied{counts} is {answer}, but in an array it is {table[counts]}"
        assert answer == table[counts], said
    check_order_of_arrival(rule, Streamed(12))


def check_schedule(schedule: Schedule) -> None:
    """Check a schedule of up to a few hundred draws: its budget, and that timing plays no role."""
    check_value(schedule)
    most = schedule.max_samples
    assert isinstance(most, int) and most >= 1, f"max_samples must be an integer, got {most!r}"
    for rule in (FixedCount(most), Balanced(1, 1)):
        check_order_of_arrival(rule, schedule)
        session = _play(RolloutSession(range(PROMPTS), rule, schedule), Random(0))
        assert not session.surplus, (
            "without a number of slots only draws that are certain to be needed may come: "
            f"{session.surplus} were surplus"
        )
        sizes = sorted({len(pool) for pool in session.pools.values()})
        full = rule != FixedCount(most) or sizes == [most]
        assert full, f"a rule that takes all {most} draws got {sizes}"


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
    counts_P, most = allocation.counts(rates_P), allocation.maximum
    assert np.issubdtype(counts_P.dtype, np.integer), f"counts must be integers, got {counts_P}"
    assert counts_P.shape == rates_P.shape, f"counts must have shape (6,), got {counts_P.shape}"
    assert counts_P.min() >= 0, f"counts must be at least 0, got {counts_P}"
    assert counts_P.max() <= most, f"counts must be at most {most}, got {counts_P}"
    expected = round(allocation.mean_draws * len(rates_P))
    assert counts_P.sum() <= expected, f"{expected} draws were to share out, got {counts_P.sum()}"
    assert np.array_equal(allocation.counts(rates_P), counts_P), "a second call gave other counts"


def check_value(plugin: Any) -> None:
    """Check that a plug-in can be sent to another process and stays equal to itself."""
    name = type(plugin).__name__
    try:
        copy = pickle.loads(pickle.dumps(plugin))
    except Exception as error:
        raise AssertionError(f"{name} must be picklable: {error}") from error
    shown: Any = type(plugin).__repr__
    said = f"{name} is not a dataclass: put `@dataclass(frozen=True)` above the class"
    assert shown is not object.__repr__, said
    assert repr(copy) == repr(plugin), f"pickled, {plugin!r} became {copy!r}"


def check_order_of_arrival(rule: Any, schedule: Schedule) -> None:
    """Check that pools are as if drawn one at a time, whatever the slots and the order."""
    pools = []
    for slots, seed in ((1, 0), (3, 1), (50, 2), (None, 3)):
        session = _play(RolloutSession(range(PROMPTS), rule, schedule), Random(seed), slots)
        pools.append([(p.rewards.tolist(), p.exit_reason) for p in session.pools.values()])
        most = max(len(rewards) for rewards, _ in pools[-1])
        said = f"a prompt may have {schedule.max_samples} draws, one got {most}"
        assert most <= schedule.max_samples, said
    assert all(found == pools[0] for found in pools), "pools depend on the order of arrival"


def _play(session: RolloutSession, random: Random, slots: int | None = None) -> RolloutSession:
    """Sample to the end; draws arrive in random order, their rewards follow from their seeds."""
    in_flight: list[Draw] = []
    while not session.done:
        free = None if slots is None else slots - len(in_flight)
        if free is None or free > 0:
            in_flight += session.next_draws(free)
        said = "nothing is in flight and no draw is handed out, but prompts have not ended"
        assert in_flight, said
        draw = in_flight.pop(random.randrange(len(in_flight)))
        surplus = session.record(draw, round(Random(draw.seed).random(), 2))
        in_flight[:] = [draw for draw in in_flight if draw not in surplus]
    return session
