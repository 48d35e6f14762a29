"""A session through an engine and a grader, whatever their timing, and whatever goes wrong."""

import asyncio
import gc
import os
import signal
import time
from collections import Counter

import numpy as np
import pytest
from drawing import (
    ANSWERS,
    GRADE,
    LENGTH,
    PASS_RATES,
    PROMPTS,
    ROUNDS,
    STREAMED,
    Fake,
    run,
    tasks_left,
)

from rollwise import loops
from rollwise.errors import EngineError, PluginError
from rollwise.grading import ExactGrader
from rollwise.sampling import FixedCount, RolloutSession, Rounds, Streamed
from rollwise.step import LostDraw, Response, grade_with, run_session


@pytest.mark.parametrize("latest", [0, 5, 200])
@pytest.mark.parametrize("seed", range(3))
def test_pools_do_not_hang_on_the_order_of_completion(expected, seed, latest):
    session, rewards, cost = run(engine := Fake(seed, latest))
    assert rewards == expected
    assert len(set(engine.begun)) == len(engine.begun) == sum(map(len, expected.values()))
    assert (cost.tokens, cost.failed_tokens) == (LENGTH * len(engine.begun), 0)
    for key, pool in session.pools.items():
        places = [(response.draw.key, response.draw.index) for response in pool.responses]
        assert places == [(key, i) for i in range(len(pool))]
        assert [r.text == ANSWERS[key] for r in pool.responses] == pool.correct.tolist()


@pytest.mark.parametrize("latest", [0, 5, 200])
def test_surplus_draws_are_cancelled_and_what_they_cost_is_counted(latest):
    """Pools do not depend on the timing; how many draws are surplus may."""
    _, wanted, _ = run(Fake(), STREAMED)
    for seed in range(5):
        session, rewards, cost = run(engine := Fake(seed, latest, slots=16), STREAMED)
        assert rewards == wanted
        completed = len(engine.begun) - len(engine.cancelled)
        assert session.surplus >= len(engine.cancelled)
        assert bool(engine.cancelled) or latest == 0
        assert cost.tokens == LENGTH * completed + len(engine.cancelled)
        assert cost.failed_tokens == 0


class Lossy(Fake):
    """Loses each draw's first `losses` attempts, after two tokens."""

    def __init__(self, losses, final=False, **options):
        super().__init__(**options)
        self.losses, self.final, self.attempts = losses, final, Counter()

    def outcome(self, draw):
        self.attempts[draw] += 1
        if self.attempts[draw] <= self.losses:
            raise LostDraw("the server restarted", 2, self.final)
        return super().outcome(draw)


@pytest.mark.parametrize("schedule", [ROUNDS, STREAMED], ids=["rounds", "streamed"])
@pytest.mark.parametrize("losses", [1, 2])
def test_lost_draws_are_drawn_again_and_nothing_counts_twice(schedule, losses, caplog):
    _, wanted, _ = run(Fake(), schedule)
    session, rewards, cost = run(engine := Lossy(losses, seed=1), schedule)
    assert rewards == wanted
    assert (session.failures, session.lost) == (
        sum(engine.attempts.values()) - completed(engine),
        0,
    )
    assert cost.failed_tokens == 2 * session.failures
    assert cost.tokens == cost.failed_tokens + LENGTH * completed(engine) + len(engine.cancelled)
    assert f"{session.failures} draws were lost: the server restarted" in caplog.text


def completed(engine):
    return sum(attempts > engine.losses for attempts in engine.attempts.values())


@pytest.mark.parametrize(("final", "attempts"), [(False, 3), (True, 1)])
def test_a_draw_is_given_up_after_a_few_attempts_or_at_once(final, attempts):
    session, rewards, _ = run(engine := Lossy(99, final))
    assert rewards == {key: [] for key in PASS_RATES}
    assert set(engine.attempts.values()) == {attempts}
    assert session.lost == len(engine.attempts)


@pytest.mark.parametrize("speculation", [0.25, 1.0])
def test_a_streaming_schedule_fills_the_slots_that_are_free(speculation):
    """Also one that draws nothing ahead: its draws come in the order of the schedule."""

    class Narrow(Fake):
        def outcome(self, draw):
            assert len(self.running) <= 3
            return super().outcome(draw)

    run(engine := Narrow(slots=3), Streamed(12, speculation))
    assert [draw.key for draw in engine.begun[:3]] == list(PASS_RATES)[:3]
    assert speculation < 1.0 or not engine.cancelled


def test_a_draw_that_is_graded_takes_up_no_slot():
    engine, given = Fake(slots=2), asyncio.Event()

    async def late(draw, response):
        given.set() if len(engine.begun) >= 8 else None  # four times what fits
        await asyncio.wait_for(given.wait(), 60)
        return 0.0

    run(engine, STREAMED, late)


async def never(*_):
    await asyncio.Event().wait()


class Hanging(Fake):
    """Answers a few times, and then never again."""

    async def complete(self, draw, prompt):
        return await (super().complete(draw, prompt) if draw.index < 2 else never())


@pytest.mark.parametrize(
    ("engine", "grade", "named"), [(Hanging(), GRADE, "Hanging"), (Fake(), never, "Fake")]
)
def test_what_hangs_is_an_error_not_an_endless_wait(engine, grade, named):
    with pytest.raises(
        EngineError, match=rf"0.05 s \(`stall_limit`\): {named} or the grader hangs"
    ):
        run(engine, grade=grade, stall_limit=0.05)
    assert not engine.running and not tasks_left()


def test_an_engine_that_blocks_the_event_loop_is_stopped_too(monkeypatch):
    class Blocking(Fake):
        async def complete(self, draw, prompt):
            time.sleep(60)

    monkeypatch.setattr("rollwise.step.session.BLOCKED", 0.05)
    with pytest.raises(EngineError, match="Blocking or the grader hangs"):
        run(Blocking(), stall_limit=0.05)
    assert not tasks_left()
    assert run(Fake())


def test_responses_and_rewards_alike_are_signs_of_life():
    """Both may take longer together than the limit, which is for each of them."""
    loop, passed = loops.run(running_loop()), []

    async def wait(*_):
        passed.append(6.0)
        for _ in range(20):
            await asyncio.sleep(0)

    class Late(Fake):
        async def complete(self, draw, prompt):
            await wait()
            return self.outcome(draw)

    async def grade(draw, response):
        await wait()
        return 1.0

    session = RolloutSession(["easy"], FixedCount(3), Rounds(1, rounds=3))
    loop.time = lambda: sum(passed)  # a clock that only these two advance
    try:
        run_session(session, Late(), PROMPTS, grade, stall_limit=10.0)
        assert len(passed) == 6
        with pytest.raises(EngineError, match="hangs"):
            run(Late(), stall_limit=5.0)
    finally:
        del loop.time


async def running_loop():
    return asyncio.get_running_loop()


class Breaking(Fake):
    def outcome(self, draw):
        if draw.key == "hard":
            raise KeyError("it breaks")
        return super().outcome(draw)


def test_an_error_of_the_engine_leaves_nothing_in_flight(caplog):
    with pytest.raises(KeyError, match="it breaks"):
        run(engine := Breaking())
    assert engine.cancelled and not engine.running and not tasks_left()
    gc.collect()
    assert not caplog.records


@pytest.mark.parametrize("wrong", [float("nan"), "1.0", None])
def test_a_reward_is_a_finite_number(wrong):
    class Wrong(ExactGrader):
        async def reward(self, response, answer):
            return wrong

    with pytest.raises(PluginError, match=r"Wrong: `reward` .* must return a finite reward"):
        run(Fake(), grade=grade_with(Wrong(), ANSWERS))


RIGHT = {"tokens": [1, 2], "logprobs": np.zeros(2)}


@pytest.mark.parametrize(
    ("answer", "due"),
    [
        ("text", "a rollwise.step.Response"),
        (Response(5, RIGHT["logprobs"]), "tokens are a list of token ids"),
        (Response([1, 2, 3]), r"within 2 tokens \(`engine.max_new_tokens`\), not 3"),
        (Response([1, 2], np.zeros(4)), "a log-probability for each token"),
        *((Response([1, 2], [p, -1.0]), "finite numbers, at most 0") for p in (-np.inf, 0.5)),
    ],
)
def test_a_response_with_a_wrong_part_names_its_engine(answer, due):
    class Mine(Fake):
        def outcome(self, draw):
            return answer

    with pytest.raises(PluginError, match=f"Mine: `complete` .*{due}"):
        run(Mine(), max_new_tokens=2)


@pytest.mark.parametrize("slots", [0, -1, 4.5, len])
def test_an_engine_says_how_many_slots_it_has(slots):
    with pytest.raises(
        PluginError, match=r"Fake: `slots` .* must return None or an integer from 1"
    ):
        run(Fake(slots=slots), STREAMED)


def test_a_schedule_that_hands_out_nothing_is_an_error():
    class Idle(Rounds):
        def dispatcher(self):
            nothing = super().dispatcher()
            nothing.next = lambda ahead: None
            return nothing

    with pytest.raises(PluginError, match="Idle hands out no draw although none is in flight"):
        run(Fake(), Idle(4, 3))


def test_prompts_end_with_what_they_have_once_draws_are_too_old():
    asked = iter([False] * 3 + [True])
    session, rewards, _ = run(engine := Fake(), too_old=lambda: next(asked))
    assert 0 < sum(map(len, rewards.values())) < len(engine.begun)
    assert all(pool.exit_reason for pool in session.pools.values())
    assert session.surplus == len(engine.begun) - sum(map(len, rewards.values()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_other_threads_say_reaches_the_loop_after_a_fork():
    """A forked process that collects its garbage does not cut the loop of this one off."""
    loops.run(asyncio.sleep(0))
    if (child := os.fork()) == 0:
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)

    def give_up(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    try:
        loops.run(asyncio.to_thread(time.sleep, 0.01))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
