"""Prompts added in the middle of a batch that has `total_draws`: each gets a draw at least."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwise.sampling import Balanced, Draw, FixedCount, RolloutSession, Rounds, Streamed

SCHEDULES = [Rounds(4, 2), Rounds(1, 8), Streamed(8), Streamed(8, 0.0), Streamed(8, 1.0)]


def test_what_is_left_of_a_round_is_kept_for_prompts_without_a_draw():
    """Ten draws, five of them handed out, then three prompts more: a and b do without some."""
    session = RolloutSession("ab", FixedCount(8), Rounds(4, 2), total_draws=10)
    in_flight = session.next_draws(5)
    session.add("cde")
    while not session.done:
        in_flight += session.next_draws()
        session.record(in_flight.pop(0), 1.0)
    assert [len(pool) for pool in session.pools.values()] == [4, 3, 1, 1, 1]


def test_prompts_that_wait_for_their_first_draw_count_too():
    """Of five draws a has two and b waits for its first; that leaves two prompts more."""
    session = RolloutSession("ab", FixedCount(8), Rounds(2, 2), total_draws=5)
    session.next_draws(2)
    with pytest.raises(ValueError, match="total_draws must be at least 6, got 5"):
        session.add("cde")
    session.add("cd")


@given(random=st.integers(0, 2**32).map(Random), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=100, deadline=None)
def test_every_prompt_gets_a_draw_whenever_it_is_added(random, schedule):
    total = random.randint(4, 40)
    session = RolloutSession(range(3), Balanced(2, 2), schedule, total_draws=total)
    in_flight: list[Draw] = []
    handed_out, refused = 0, False
    while not session.done:
        if random.random() < 0.2 and not refused:
            new = range(len(session.pools), len(session.pools) + random.randint(1, 4))
            try:
                session.add(new)
            except ValueError:
                refused = True
        draws = session.next_draws(random.choice([None, 1, 2, 5]))
        handed_out += len(draws)
        in_flight += draws
        if in_flight:
            draw = in_flight.pop(random.randrange(len(in_flight)))
            surplus = session.record(draw, float(random.random() < 0.3))
            in_flight = [draw for draw in in_flight if draw not in surplus]
    assert handed_out <= total
    assert all(len(pool) >= 1 for pool in session.pools.values())


@pytest.mark.parametrize("keys", [["a"], ["b", "b"], ["b", None], []])
def test_a_refused_addition_adds_nothing(keys):
    session = RolloutSession(["a"], FixedCount(2))
    with pytest.raises((ValueError, TypeError)):
        session.add(keys)
    assert list(session.pools) == ["a"]
