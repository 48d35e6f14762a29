"""What sessions must do, whatever their exit rule and schedule; `testing` has the other checks."""

import pickle
from random import Random
from typing import Any

from rollwise.sampling.draws import Draw
from rollwise.sampling.exits import Balanced, FixedCount
from rollwise.sampling.schedules import Schedule
from rollwise.sampling.session import RolloutSession

PROMPTS = 7
"""Prompts of the sessions that the checks run."""


def check_schedule(schedule: Schedule) -> None:
    """Check a schedule of at most a few hundred draws: its budget, and that timing is nothing."""
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


def check_value(plugin: Any) -> None:
    """Check that it can be sent to another process and stays equal to itself."""
    kind: Any = type(plugin)
    name = kind.__name__
    try:
        copy = pickle.loads(pickle.dumps(plugin))
    except Exception as error:
        raise AssertionError(f"{name} must be picklable: {error}") from error
    assert kind.__repr__ is not object.__repr__, (
        f"{name} is no dataclass: put `@dataclass(frozen=True)` above the class"
    )
    assert repr(copy) == repr(plugin), f"pickled, {plugin!r} became {copy!r}"


def check_order_of_arrival(rule: Any, schedule: Schedule) -> None:
    """Check that pools are those of one draw after another, whatever the slots and the order."""
    pools = []
    for slots, seed in ((1, 0), (3, 1), (50, 2), (None, 3)):
        session = _play(RolloutSession(range(PROMPTS), rule, schedule), Random(seed), slots)
        pools.append([(p.rewards.tolist(), p.exit_reason) for p in session.pools.values()])
        most = max(len(rewards) for rewards, _ in pools[-1])
        assert most <= schedule.max_samples, (
            f"a prompt may have {schedule.max_samples} draws, one got {most}"
        )
    assert all(found == pools[0] for found in pools), "pools depend on the order of arrival"


def _play(session: RolloutSession, random: Random, slots: int | None = None) -> RolloutSession:
    """Sample to the end; draws arrive in random order, their rewards follow from their seeds."""
    in_flight: list[Draw] = []
    while not session.done:
        free = None if slots is None else slots - len(in_flight)
        if free is None or free > 0:
            in_flight += session.next_draws(free)
        assert in_flight, (
            "nothing is in flight and no draw is handed out, but prompts have not ended"
        )
        draw = in_flight.pop(random.randrange(len(in_flight)))
        surplus = session.record(draw, round(Random(draw.seed).random(), 2))
        in_flight[:] = [draw for draw in in_flight if draw not in surplus]
    return session
