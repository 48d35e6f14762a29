"""Coroutines draw what a session asks for: the pools are those of drawing one by one."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwise.integrations.verl.rollout import run_session
from rollwise.sampling import Balanced, RolloutSession, Rounds, Streamed

RULE = Balanced(positives=2, negatives=2)
ROUNDS = Rounds(size=4, rounds=2)
SCHEDULES = [Rounds(size=4, rounds=3), Streamed(max_samples=12), Streamed(12, speculation=0.9)]


def reward_of(draw, hardness=3):
    return float(draw.seed % hardness == 0)


class Responder:
    """A fake engine: each draw takes its own number of turns of the event loop."""

    def __init__(self, delays=(1, 5, 2, 0, 7), fails=(), hardness=3):
        self.delays, self.fails, self.hardness = delays, set(fails), hardness
        self.begun, self.cancelled = [], []

    async def __call__(self, draw):
        self.begun.append(draw)
        try:
            for _ in range(self.delays[draw.index % len(self.delays)]):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(draw)
            raise
        if (draw.key, draw.index, self.begun.count(draw)) in self.fails:
            raise ConnectionError("the engine went away")
        return reward_of(draw, self.hardness), f"response {draw.index}"


def drive(session, responder, *too_old):
    """Draw to the end; nothing may be under way then."""

    async def to_the_end():
        await asyncio.wait_for(run_session(session, responder, *too_old), timeout=60)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(to_the_end())
    drawn = sum(len(pool) for pool in session.pools.values())
    assert len(responder.begun) == drawn + session.surplus + session.failures
    return session.pools


def one_by_one(session):
    """Draw as the documentation of the session does."""
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, reward_of(draw), f"response {draw.index}")
    return session.pools


def same_pools(found, expected):
    for pool, other in zip(found.values(), expected.values(), strict=True):
        assert pool.rewards.tolist() == other.rewards.tolist()
        assert (pool.responses, pool.exit_reason) == (other.responses, other.exit_reason)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), delays=st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_pools_are_those_of_drawing_one_by_one(schedule, seed, delays):
    found = drive(RolloutSession("ab", RULE, schedule, seed=seed), Responder(delays))
    same_pools(found, one_by_one(RolloutSession("ab", RULE, schedule, seed=seed)))


def test_draws_under_way_are_given_up_where_a_prompt_has_grown_too_old():
    session = RolloutSession("p", RULE, Streamed(max_samples=8))
    responder = Responder(delays=(0, 9, 9, 9), hardness=10**9)
    drive(session, responder, lambda: bool(session.pools["p"]))
    assert len(session.pools["p"]) > 0
    assert session.surplus > 0


def test_what_is_not_wanted_any_more_is_cancelled():
    # Every second response is correct at once and the others hang: sampling must end without them.
    session = RolloutSession("a", Balanced(1, 1), Streamed(max_samples=8, speculation=0.0))
    responder = Responder(delays=[0, 0, 10**6], hardness=2)
    drive(session, responder)
    assert responder.cancelled


def test_a_draw_that_fails_is_drawn_again_and_at_last_given_up():
    session = RolloutSession("ab", RULE, ROUNDS)
    found = drive(session, Responder(fails=[("a", 1, 1), ("b", 0, 1), ("b", 0, 2)]))
    assert (session.failures, session.lost) == (3, 0)
    same_pools(found, one_by_one(RolloutSession("ab", RULE, ROUNDS)))
    session = RolloutSession("a", RULE, Rounds(size=4, rounds=1))
    drive(session, Responder(fails=[("a", 1, attempt) for attempt in (1, 2, 3)]))
    assert (session.failures, session.lost, len(session.pools["a"])) == (3, 1, 3)


def test_nothing_continues_after_it_is_cancelled_itself():
    responder = Responder(delays=[10**6])

    async def interrupted():
        task = asyncio.create_task(run_session(RolloutSession("a", RULE, ROUNDS), responder))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(interrupted())
    assert len(responder.cancelled) == 4
