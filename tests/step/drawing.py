"""A session of four prompts, and fakes that complete and grade its draws in any order."""

import asyncio
import random

import numpy as np

from rollwise import loops
from rollwise.engines import Engine
from rollwise.grading import ExactGrader
from rollwise.sampling import Balanced, RolloutSession, Rounds, Streamed
from rollwise.step import LostDraw, Response, grade_with, run_session

PASS_RATES = {"easy": 0.9, "even": 0.5, "hard": 0.1, "hopeless": 0.0}
PROMPTS = {key: [i] for i, key in enumerate(PASS_RATES)}
ANSWERS = {key: f"answer to {key}" for key in PASS_RATES}
ROUNDS, STREAMED = Rounds(size=4, rounds=3), Streamed(12)
LENGTH = 7


def text_of(draw):
    """What the fakes draw: the answer or nothing, by the draw's seed alone."""
    lucky = random.Random(draw.seed).random() < PASS_RATES[draw.key]
    return ANSWERS[draw.key] if lucky else ""


class Fake(Engine):
    """Completes its draws in any order, in up to `latest` rounds of the event loop."""

    def __init__(self, seed=0, latest=5, slots=None):
        self.random, self.latest, self.slots = random.Random(seed), latest, slots
        self.running, self.begun, self.cancelled = set(), [], []

    def load_weights(self, weights): ...

    async def complete(self, draw, prompt):
        assert prompt == PROMPTS[draw.key]
        self.begun.append(draw)
        self.running.add(draw)
        try:
            for _ in range(self.random.randint(0, self.latest)):
                await asyncio.sleep(0)
            return self.outcome(draw)
        except asyncio.CancelledError:
            self.cancelled.append(draw)
            raise LostDraw("it was cancelled", tokens=1) from None
        finally:
            self.running.remove(draw)

    def outcome(self, draw):
        return Response([1] * LENGTH, np.zeros(LENGTH), text_of(draw))


class Slow(ExactGrader):
    """Gives rewards in any order; the answer must be the right one."""

    async def reward(self, response, answer):
        assert answer in ANSWERS.values()
        for _ in range(len(response) % 3):
            await asyncio.sleep(0)
        return await super().reward(response, answer)


GRADE = grade_with(Slow(), ANSWERS)


def make_session(schedule=ROUNDS, rule=Balanced(2, 2)):  # noqa: B008  frozen
    return RolloutSession(PASS_RATES, rule, schedule, seed=5, step=2)


def run(engine, schedule=ROUNDS, grade=GRADE, **limits):
    """Run a session to its end; returns it, its rewards, and its cost."""
    session = make_session(schedule)
    cost = run_session(session, engine, PROMPTS, grade, **limits)
    assert session.done and not engine.running and not tasks_left()
    return session, rewards_of(session), cost


def rewards_of(session):
    return {key: pool.rewards.tolist() for key, pool in session.pools.items()}


def tasks_left():
    """Return the tasks of the loop; the one that asks is no other."""

    async def others():
        return asyncio.all_tasks() - {asyncio.current_task()}

    return loops.run(others())


def expected_rewards():
    """The rewards as if each response had been drawn, graded and recorded by itself, in order."""
    session = make_session()
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, float(text_of(draw) == ANSWERS[draw.key]))
    return rewards_of(session)
