"""A pool is the one that drawing one at a time would give, whatever the engine's timing."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import Engine, contents, in_any_order, one_at_a_time

from rollwise.sampling import (
    Balanced,
    FixedCount,
    GiveUp,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Streamed,
)

RULES = [
    PositiveFocused(1),
    Balanced(2, 2),
    FixedCount(3),
    GiveUp(Balanced(2, 2), 0.3),
    GiveUp(PositiveFocused(1), 0.4),
]
SCHEDULES = [Rounds(3, 4), Rounds(1, 12), *(Streamed(12, ahead) for ahead in (0.0, 0.1, 0.5, 1.0))]


@given(
    random=st.integers(0, 2**32).map(Random),
    rule=st.sampled_from(RULES),
    schedule=st.sampled_from(SCHEDULES),
    slots=st.integers(1, 40),
    faulty=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_pools_are_those_of_drawing_one_at_a_time(random, rule, schedule, slots, faulty):
    """Whatever the order of completion, the slots, failures, and how far draws run ahead.

    A session is pickled now and then.
    """

    def session() -> RolloutSession:
        return RolloutSession(range(7), rule, schedule, seed=3)

    alone, played = session(), in_any_order(session(), random, slots, Engine(faulty))
    assert contents(played) == contents(one_at_a_time(alone, faulty))
    for pool in played.pools.values():
        assert pool.responses == sorted(set(pool.responses)), "each draw once, in draw order"
    if isinstance(schedule, Streamed):
        rounds = RolloutSession(range(7), rule, Rounds(1, 12), seed=3)
        assert contents(alone) == contents(one_at_a_time(rounds, faulty))
        assert played.surplus == 0 or schedule.draws_ahead
