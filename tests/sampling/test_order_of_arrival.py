"""A pool is the one that drawing one at a time would give, whatever the engine's timing."""

import copy
import heapq
import pickle
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import Engine, contents, in_any_order, one_at_a_time

from rollwise.sampling import (
    Balanced,
    Draw,
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
INTERLEAVINGS = st.integers(0, 2**32).map(Random)


@given(
    random=INTERLEAVINGS,
    rule=st.sampled_from(RULES),
    schedule=st.sampled_from(SCHEDULES),
    slots=st.integers(1, 40),
    faulty=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_pools_are_those_of_drawing_one_at_a_time(random, rule, schedule, slots, faulty):
    """Whatever the order of completion, the slots, failures, and how far draws run ahead."""

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


@given(
    random=INTERLEAVINGS,
    schedule=st.sampled_from(SCHEDULES),
    events=st.integers(0, 100),
    later=st.integers(),
)
@settings(max_examples=40, deadline=None)
def test_a_session_pickled_in_flight_goes_on_identically(random, schedule, events, later):
    session = RolloutSession(range(5), Balanced(2, 2), schedule, seed=3)
    engine, flying = Engine(faulty=True), []
    in_any_order(session, random, 10, engine, flying, events)
    again = pickle.loads(pickle.dumps(session))
    copies = copy.deepcopy(engine), list(flying)
    in_any_order(session, Random(later), 10, engine, flying)
    in_any_order(again, Random(later), 10, *copies)
    assert session.done
    assert contents(again) == contents(session)
    assert (again.surplus, again.failures) == (session.surplus, session.failures)


# Nothing favours short answers


def in_virtual_time(slots: int, by_completion: bool = False) -> np.ndarray:
    """Mean length and reward of each pool, shape (prompts, 2); correct responses are shorter.

    With `by_completion`, draws are numbered as they finish: the variant that this project avoids.
    """
    session = RolloutSession(range(500), Balanced(2, 2), Streamed(32, 0.25))
    events: list[tuple[float, int, float, float]] = []
    drawn: dict[Draw, int] = {}  # what is in flight, and the event that it ends by
    draw_of: dict[int, Draw] = {}
    now, count = 0.0, 0
    while not session.done:
        for draw in session.next_draws(slots - len(drawn)) if len(drawn) < slots else []:
            random = Random(draw.seed)
            correct = random.random() < 0.3
            length = random.expovariate(1.0) * (1.0 if correct else 4.0)
            heapq.heappush(events, (now + length, count, float(correct), length))
            drawn[draw], draw_of[count] = count, draw
            count += 1
        now, event, correct, length = heapq.heappop(events)
        if event not in draw_of:
            continue
        draw = draw_of[event]
        if by_completion:
            first = min((d for d in drawn if d.key == draw.key), key=lambda d: d.index)
            draw_of[drawn[first]], drawn[draw] = draw, drawn[first]
            draw = first
        del drawn[draw], draw_of[event]
        for cancelled in session.record(draw, correct, response=length):
            del draw_of[drawn.pop(cancelled)]
    return np.array([(np.mean(p.responses), p.rewards.mean()) for p in session.pools.values()])


def test_lengths_and_rewards_are_those_of_drawing_one_at_a_time():
    """Within 3 standard errors; taking responses as they finish fails that by far."""
    alone = in_virtual_time(slots=1)
    streamed = in_virtual_time(slots=6000)
    by_completion = in_virtual_time(slots=6000, by_completion=True)
    np.testing.assert_array_equal(streamed, alone)
    error = alone.std(axis=0) / np.sqrt(len(alone))
    assert np.all(np.abs(streamed.mean(axis=0) - alone.mean(axis=0)) <= 3 * error)
    assert np.all(np.abs(by_completion.mean(axis=0) - alone.mean(axis=0)) > 3 * error)
