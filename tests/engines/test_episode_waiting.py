"""Episodes that wait, or are cancelled."""

import asyncio
import contextlib
import gc
import sys
import threading
import warnings

import pytest
from episode_fakes import DRAW, Playing, Talking, playing_by
from tiny_models import LIMIT, PROMPTS, make_model, make_tokenizer

from rollwise.engines.asynchronous import AsyncEngine
from rollwise.engines.transformers import TransformersEngine
from rollwise.environments import Turn
from rollwise.sampling import Draw


def test_answers_that_wait_do_so_beside_each_other():
    async def step(turn, reply):
        if turn == 2:
            return Turn(done=True, reward=1.0)
        meeting.append(reply)
        while len(meeting) < 3:
            await asyncio.sleep(0)
        return Turn("x")

    meeting = []
    with playing_by(Playing(step), Talking(slots=3)) as engine:
        engine.submit([Draw("a", i, i) for i in range(3)], {"a": [7]})
        assert engine.free_slots == 0
        done = []
        while found := engine.wait():
            done += found
        assert engine.free_slots == 3
    assert [outcome.end for outcome in done] == ["done"] * 3


def test_what_is_cancelled_has_cost_all_its_turns():
    """a waits for its answer after 2 tokens; b draws its second turn, 3 of which are drawn."""
    never = asyncio.Event()

    async def waits():
        await never.wait()

    def step(turn, reply):
        return waits() if reply == "said 1" else Turn("x")

    a, b, c = (Draw(key, 0, seed) for seed, key in enumerate(("a", "b", "a")))
    engine = Talking(slots=2, portion=1)
    with playing_by(Playing(step), engine) as playing:
        playing.submit([a, b, c], {"a": [7], "b": [8]})
        for _ in range(2):
            for result in engine.wait():
                playing._end_turn(result)
        assert playing.cancel([a]) == 2
        assert playing.cancel([b]) == 2 + 3
        assert playing.cancel([c]) == 0 == playing.cancel([a, b, c])
        assert playing.free_slots == 2
        assert playing.wait() == []


def test_answers_that_are_ready_are_drawn_on_before_others_are_awaited():
    """The second draw's first turn takes for ever; the first is answered in the meantime."""

    async def step(turn, reply):
        return Turn(done=True, reward=1.0) if turn == 2 else Turn("x")

    class Interruptible(Talking):
        """Answers draw 0 alone; as long as that has nothing to draw, it waits to be interrupted."""

        def __init__(self):
            super().__init__()
            self.bell = threading.Semaphore(0)

        def wait(self):
            done = [draw for draw in self.under_way if draw.index == 0]
            if not done:
                assert self.bell.acquire(timeout=60), "nobody said that there is more to draw"
                return []
            return [self.result(draw, self.under_way.pop(draw)) for draw in done]

        def interrupt(self):
            self.bell.release()

    engine = Interruptible()
    with playing_by(Playing(step), engine) as playing:
        playing.submit([Draw("a", i, i) for i in range(2)], {"a": [7]})
        [outcome] = playing.wait()
        assert (outcome.draw.index, outcome.usage.turns) == (0, 2)


@pytest.mark.parametrize("blocks", [True, False], ids=["the loop is blocked", "cancel is ignored"])
def test_an_environment_that_does_not_end_is_left_behind(blocks, caplog, monkeypatch):
    monkeypatch.setattr("rollwise.engines.environment_loop.CLOSE_SECONDS", 0.05)
    unawaited = []
    monkeypatch.setattr(sys, "unraisablehook", unawaited.append)
    free, begun = threading.Event(), threading.Event()

    async def step(turn, reply):
        begun.set()
        while not free.is_set():
            if blocks:
                free.wait()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        return Turn(done=True)

    turns = Talking()
    engine = playing_by(Playing(step), turns)
    engine.submit([DRAW], {"a": [7]})
    [result] = turns.wait()
    engine._end_turn(result)
    assert begun.wait(60)
    of_environment = engine._answers._thread._thread
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert "is left behind" in caplog.text
    free.set()
    of_environment.join(60)
    assert not of_environment.is_alive()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # which `unraisablehook` is told of
        gc.collect()
    assert not unawaited, "coroutines that nobody awaited were left behind"


def test_the_built_in_engine_can_be_interrupted_and_draws_on():
    tokenizer = make_tokenizer()
    engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=5)
    key, prompt = next(iter(PROMPTS.items()))
    draws = [Draw(key, index, index) for index in range(7)]
    engine.submit(draws, {key: prompt})
    engine.interrupt()
    assert engine.wait() == []
    done = []
    while found := engine.wait():
        done += found
    assert {completion.draw for completion in done} == set(draws)


def test_an_engine_on_an_event_loop_can_be_interrupted():
    class Idle(AsyncEngine):
        submit = load_weights = None

    with Idle(slots=1, name="idle") as engine:
        engine._begin(DRAW, asyncio.Event().wait, seconds=60)
        engine.interrupt()
        assert engine.wait() == []
        assert engine.cancel([DRAW]) == 0
