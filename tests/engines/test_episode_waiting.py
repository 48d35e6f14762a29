"""Episodes that wait, or are cancelled."""

import asyncio
import threading

from episode_fakes import DRAW, Playing, Talking, playing_by

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


def test_an_environment_that_does_not_end_is_left_behind(monkeypatch):
    monkeypatch.setattr("rollwise.engines.asynchronous.CLOSE_SECONDS", 0.05)
    free, begun = threading.Event(), threading.Event()

    async def step(turn, reply):
        begun.set()
        free.wait()

    turns = Talking()
    with playing_by(Playing(step), turns) as engine:
        engine.submit([DRAW], {"a": [7]})
        [result] = turns.wait()
        engine._end_turn(result)
        assert begun.wait(60)
        of_environment = engine._thread._thread
    assert of_environment.is_alive()
    free.set()
    of_environment.join(60)
    assert not of_environment.is_alive()
