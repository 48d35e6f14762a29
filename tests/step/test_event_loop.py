"""The event loop of a session: signals, notebooks, and work within work."""

import asyncio
import gc
import signal
import threading

import pytest
from drawing import (
    ANSWERS,
    GRADE,
    PASS_RATES,
    PROMPTS,
    Fake,
    make_session,
    run,
    tasks_left,
)

from rollwise.grading import ExactGrader
from rollwise.sampling import FixedCount, RolloutSession
from rollwise.simulate.engine import Lengths, SimulatedEngine
from rollwise.step import run_session


@pytest.fixture
def interrupt():
    """Interrupts what runs, as a signal's handler does that raises."""

    def handle(number, frame):
        raise KeyboardInterrupt("signal")

    before = signal.signal(signal.SIGTERM, handle)
    yield lambda: signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("where", ["engine", "grader", "runner", "loop"])
def test_a_signal_leaves_nothing_in_flight_and_the_loop_works(where, interrupt, expected, caplog):
    class Interrupted(Fake):
        def outcome(self, draw):
            if where == "engine" and len(self.begun) > 4:
                interrupt()
            if where == "loop" and draw == self.begun[0]:
                asyncio.get_running_loop().call_soon(interrupt)
            return super().outcome(draw)

    async def grade(draw, response):
        if where == "grader":
            interrupt()
        return await GRADE(draw, response)

    with pytest.raises(KeyboardInterrupt, match="signal"):
        run(
            engine := Interrupted(latest=100),
            grade=grade,
            too_old=lambda: where == "runner" and interrupt(),
        )
    assert engine.begun and not engine.running and not tasks_left()
    gc.collect()
    assert not caplog.records
    assert run(Fake())[1] == expected


def test_a_session_runs_also_where_a_loop_is_running(expected):
    """As in a notebook."""

    async def cell():
        return run(Fake())[1]

    assert asyncio.run(cell()) == expected


def test_an_interrupted_cell_of_a_notebook_leaves_nothing_in_flight(interrupt, expected):
    class Interrupted(Fake):
        sent = False

        async def complete(self, draw, prompt):
            if len(self.begun) == 4 and not self.sent:
                self.sent = True
                signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
                await asyncio.wait_for(asyncio.Event().wait(), 60)
            return await super().complete(draw, prompt)

    async def cell():
        with pytest.raises(KeyboardInterrupt, match="signal"):
            run(engine)
        assert engine.begun and not engine.running and not tasks_left()
        return run(Fake())[1]

    engine = Interrupted()
    assert asyncio.run(cell()) == expected


def test_a_signal_in_the_middle_of_a_batch_is_raised_once(interrupt, caplog):
    class Interrupted(SimulatedEngine):
        def _advance(self):
            if self.now > 0:
                interrupt()
            return super()._advance()

    engine = Interrupted(PASS_RATES, Lengths(10, 0.5, 40), slots=4)
    with pytest.raises(KeyboardInterrupt, match="signal"):
        run_session(make_session(), engine, PROMPTS, engine.reward)
    del engine
    gc.collect()
    assert not tasks_left() and not caplog.records


def test_what_waits_in_our_own_loop_can_run_more():
    """A plug-in that is a coroutine may call what is synchronous."""

    async def grade(draw, response):
        return float(ExactGrader().grade([response.text], [ANSWERS[draw.key]])[0])

    session = RolloutSession(["easy"], FixedCount(2), seed=5, step=2)
    run_session(session, Fake(), PROMPTS, grade)
    assert session.done
