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


def test_an_open_ended_session_takes_prompts_until_it_is_closed():
    session = RolloutSession([], FixedCount(1), Streamed(1), total_draws=3, open_ended=True)
    assert session.next_draws(4) == []
    session.add("ab")
    for draw in session.next_draws(4):
        session.record(draw, 1.0)
    assert (session.ended, session.room, session.done) == (2, 1, False)
    session.add("c")
    session.close()
    assert not session.done
    session.record(session.next_draws(4)[0], 0.0)
    assert (session.ended, session.room, session.done) == (3, 0, True)
    with pytest.raises(ValueError, match="at least one prompt"):
        RolloutSession([], FixedCount(1))


@given(random=st.integers(0, 2**32).map(Random), rule=st.sampled_from([FixedCount(3), Balanced()]))
@settings(max_examples=60, deadline=None)
def test_prompts_that_another_session_takes_over_end_as_they_would_have(random, rule):
    """Sessions of steps 2, 3 and 4 hand over what is under way; draws may fail in between."""

    def reward(draw):
        return float(Random(draw.seed).random() < 0.5)

    alone = RolloutSession(range(6), rule, Streamed(8), seed=1, step=2)
    while draws := alone.next_draws():
        for draw in draws:
            alone.record(draw, reward(draw))
    session = RolloutSession(range(6), rule, Streamed(8), seed=1, step=2)
    ended, in_flight, failed = {}, [], set()
    while not session.done:
        in_flight += session.next_draws(random.randint(1, 5))
        draw = in_flight.pop(random.randrange(len(in_flight)))
        if draw not in failed and random.random() < 0.3:
            failed.add(draw)
            surplus = session.record_failure(draw)
        else:
            surplus = session.record(draw, reward(draw))
        in_flight = [draw for draw in in_flight if draw not in surplus]
        if session.step < 4 and random.random() < 0.2:
            under_way = session.hand_over()
            assert session.done
            assert session.next_draws(9) == []
            assert sorted(map(str, under_way.in_flight)) == sorted(map(str, in_flight))
            ended |= session.pools
            session = RolloutSession(
                [], rule, Streamed(8), seed=1, step=session.step + 1, open_ended=True
            )
            session.take_over(under_way)
            session.close()
    ended |= session.pools
    assert {key: pool.rewards.tolist() for key, pool in ended.items()} == {
        key: pool.rewards.tolist() for key, pool in alone.pools.items()
    }


def test_a_session_takes_over_each_prompt_once_and_only_if_it_streams():
    session = RolloutSession("ab", FixedCount(1), Streamed(1))
    under_way = session.hand_over()
    rounds = RolloutSession("c", FixedCount(1), Rounds(1, 1))
    with pytest.raises(ValueError, match="does not stream"):
        rounds.take_over(under_way)
    other = RolloutSession("a", FixedCount(1), Streamed(1))
    with pytest.raises(ValueError, match="'a' twice"):
        other.take_over(under_way)
