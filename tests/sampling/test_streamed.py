"""Whatever the engine's timing, pools are those of single draws; what streaming adds to that."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import Engine, contents, in_any_order, one_at_a_time

from rollwise import Balanced, FixedCount, PositiveFocused, RolloutSession, Rounds, Streamed

RULES = [
    *((rule, 0.0) for rule in (PositiveFocused(1), Balanced(2, 2), FixedCount(3))),
    *((Balanced(2, 2), 0.3), (PositiveFocused(1), 0.4)),
]
"""Rules, and the chance below which a prompt is given up."""
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
    """Whatever the order of completion, the slots, failures, and how far draws run ahead."""

    def session(keys, schedule=schedule) -> RolloutSession:
        return RolloutSession(range(keys), rule[0], schedule, seed=3, give_up_below=rule[1])

    late = random.randint(0, 6)
    alone = one_at_a_time(session(7), faulty)
    played = in_any_order(session(7 - late), random, slots, Engine(faulty), range(7 - late, 7))
    assert contents(played) == contents(alone)
    for pool in played.pools.values():
        assert pool.responses == sorted(set(pool.responses)), "each draw once, in draw order"
        assert len(pool) <= schedule.max_samples
    if isinstance(schedule, Streamed):
        assert contents(alone) == contents(one_at_a_time(session(7, Rounds(1, 12)), faulty))
        assert played.surplus == 0 or schedule.draws_ahead


def test_a_failed_draw_that_is_surplus_by_now_is_not_drawn_again():
    session = RolloutSession("ab", PositiveFocused(1), Streamed(8, speculation=0.0))
    draws = [draw for draw in session.next_draws(16) if draw.key == "a"]
    session.record_failure(draws[1])
    assert session.record(draws[0], 1.0) == draws[2:]
    assert session.next_draws(8) == []


def test_slots_are_filled_by_those_furthest_behind():
    """One draw each first; then the prompt that nothing is in flight for."""
    session = RolloutSession("abc", Balanced(2, 2), Streamed(32, speculation=0.0))
    first = session.next_draws(3)
    assert [draw.key for draw in first] == ["a", "b", "c"]
    session.record(first[1], 0.0)
    assert [draw.key for draw in session.next_draws(1)] == ["b"]
    assert len(session.next_draws(93)) == 92, "all draws of all budgets, and no more"


def test_speculation_keeps_to_draws_that_are_likely_to_be_needed():
    """One correct response is needed. Nothing is believed, so the n-th draw is with 1/n."""
    for speculation, handed_out in ((1.0, 1), (0.5, 2), (0.25, 4), (0.125, 8)):
        session = RolloutSession(["a"], PositiveFocused(1), Streamed(32, speculation))
        assert len(session.next_draws(32)) == handed_out


def test_beliefs_order_the_draws():
    """Of three prompts that each have one draw, those believed to need most come first."""
    priors = [(5.0, 5.0), (1.0, 15.0), (15.0, 1.0)]
    session = RolloutSession(
        "abc", PositiveFocused(1), Streamed(32, speculation=0.2), priors=priors
    )
    first = session.next_draws(3)
    assert {draw.key for draw in first} == set("abc")
    assert [draw.key for draw in session.next_draws(6)].count("b") >= 4


def test_giving_up_ends_as_futile_and_beliefs_bring_it_forward():
    lengths = []
    for prior in [(1.0, 1.0), (1.0, 31.0)]:
        session = RolloutSession(
            ["a"], PositiveFocused(1), Streamed(32), priors=[prior], give_up_below=0.3
        )
        while draws := session.next_draws(1):
            session.record(draws[0], 0.0)
        assert session.pools["a"].exit_reason == "futile"
        lengths.append(len(session.pools["a"]))
    assert lengths[1] < lengths[0]


@pytest.mark.parametrize("schedule", [Rounds(8, 4), Streamed(32)])
def test_budgets_of_prompts(schedule):
    session = RolloutSession("abc", FixedCount(32), schedule, budgets=[1, 5, 32])
    while draws := session.next_draws(4):
        for draw in draws:
            session.record(draw, 1.0)
    assert [len(pool) for pool in session.pools.values()] == [1, 5, 32]
    assert [p.exit_reason for p in session.pools.values()] == ["exhausted"] * 2 + ["satisfied"]


@pytest.mark.parametrize(("arguments", "message"), [((0,), "max_samples"), ((8, 1.5), "specul")])
def test_a_schedule_is_checked_where_it_is_made(arguments, message):
    with pytest.raises(ValueError, match=message):
        Streamed(*arguments)
