"""vLLM's process: its memory, its death, and its end with the process that started it."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from forked import family
from tiny_models import PROMPTS, complete, make_draws
from vllm_on_cpu import SETTINGS, make_engine, tokens_of
from waiting import wait_until

from rollwise import loops
from rollwise.errors import EngineError
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.step.session import run_session

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]


@pytest.fixture(params=[1, 2])
def sleeper(request, engine):
    """The engine at a sleep level. A CPU's memory stays: at level 2 its weights are wiped here."""
    engine.settings = replace(SETTINGS, sleep_level=request.param)
    sleep = engine._llm.sleep

    async def sleep_and_wipe(level=1, mode="abort"):
        await sleep(level, mode)
        if level == 2:
            await engine._llm.collective_rpc("reset_weights")

    engine._llm.sleep = sleep_and_wipe
    yield engine
    engine._llm.sleep = sleep


def is_asleep(engine):
    return loops.run(engine._llm.is_sleeping())


def test_it_wakes_up_with_the_latest_weights(sleeper, models):
    before = tokens_of(sleeper, draws := make_draws(10))
    sleeper.load_weights(models[1].state_dict())
    others = tokens_of(sleeper, draws)
    sleeper.load_weights(models[0].state_dict())
    sleeper.sleep()
    assert is_asleep(sleeper)
    sleeper.load_weights(models[1].state_dict())
    assert not is_asleep(sleeper)
    assert tokens_of(sleeper, draws) == others != before
    sleeper.sleep()
    assert is_asleep(sleeper)
    assert tokens_of(sleeper, draws) == others, "the next draw wakes it up"
    sleeper.load_weights(models[0].state_dict())
    assert tokens_of(sleeper, draws) == before


def test_weights_of_the_folder_come_back_if_no_others_were_loaded(sleeper, models, monkeypatch):
    before = tokens_of(sleeper, draws := make_draws(10))
    monkeypatch.setattr(sleeper, "_weights", None)
    sleeper.sleep()
    assert tokens_of(sleeper, draws) == before


def test_memory_that_cannot_be_taken_back_is_an_error(sleeper, monkeypatch):
    async def fails(tags=None):
        raise RuntimeError("CUDA Error: out of memory")

    sleeper.sleep()
    with monkeypatch.context() as patch:
        patch.setattr(sleeper._llm, "wake_up", fails)
        with pytest.raises(EngineError, match=r"gpu_memory_utilization .*out of memory"):
            complete(sleeper, make_draws(1))
    complete(sleeper, make_draws(1))


def test_a_cpu_has_no_memory_to_free(folders, tokenizer):
    with pytest.raises(EngineError, match=r"(?is)did not start.*sleep mode is not supported"):
        make_engine(folders[0], tokenizer, sleep_level=1)


def kill(engine):
    """End vLLM's process as the kernel does where memory runs out."""
    (process,) = engine._llm.engine_core.resources.engine_manager.processes
    os.kill(process.pid, signal.SIGKILL)
    process.join()


async def never(*request, **options):
    """Answer as vLLM does: by a stream, which here has no end."""
    await asyncio.Event().wait()
    yield


def test_a_process_that_dies_loses_its_draws_and_nothing_else(
    engine, folders, models, tokenizer, caplog
):
    """A second engine: fresh, then with other weights, killed within a step, and once too often."""
    draws = make_draws(10)
    wanted = tokens_of(engine, make_draws(16))
    engine.load_weights(models[1].state_dict())
    taken_over = tokens_of(engine, draws)
    engine.load_weights(models[0].state_dict())

    with make_engine(folders[1], tokenizer) as mortal:
        assert tokens_of(mortal, draws) == taken_over
        mortal.load_weights(models[0].state_dict())
        graded = []

        async def kill_and_grade(draw, response):
            if not graded:
                kill(mortal)
            graded.append(draw)
            return 1.0

        session = RolloutSession(list(PROMPTS), FixedCount(16), Rounds(16, rounds=1), seed=0)
        run_session(session, mortal, PROMPTS, kill_and_grade)
        assert len(graded) == len(set(graded)) == 48
        assert session.failures > 0
        assert session.lost == 0
        assert mortal.restarts == 1
        for pool in session.pools.values():
            assert [r.draw.index for r in pool.responses] == list(range(16))
            assert all(r.tokens == wanted[r.draw] for r in pool.responses)
        said = [record.getMessage() for record in caplog.records]
        assert any("EngineDeadError" in line or "process died" in line for line in said)

        kill(mortal)
        with pytest.raises(EngineError, match="died 2 times"):
            while complete(mortal, draws):  # lost, until it is known that it has died
                pass


def test_a_restart_that_fails_is_an_error(folders, tokenizer, tmp_path):
    with make_engine(folders[0], tokenizer) as mortal:
        mortal.path = str(tmp_path / "moved")
        kill(mortal)
        with pytest.raises(EngineError, match="did not start"):
            while complete(mortal, make_draws(4)):  # lost, until it is known that it has died
                pass
        mortal.sleep()


def test_a_request_that_reaches_a_process_as_it_dies_is_lost(folders, tokenizer):
    with make_engine(folders[0], tokenizer) as mortal:
        mortal._llm.generate = never

        async def kill_meanwhile():
            begun = [asyncio.create_task(mortal.complete(d, [5, 9])) for d in make_draws(2)]
            await asyncio.sleep(0)
            kill(mortal)
            return await asyncio.gather(*begun, return_exceptions=True)

        assert {lost.reason for lost in loops.run(kill_meanwhile())} == {"vLLM's process died"}


def test_a_model_that_vllm_cannot_load_is_an_error(tmp_path, tokenizer):
    with pytest.raises(EngineError, match="did not start"):
        make_engine(tmp_path / "nothing", tokenizer)


KILLED = """
import sys
from transformers import PreTrainedTokenizerFast
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.vllm import VLLMEngine

if __name__ == "__main__":
    folder = sys.argv[1]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    settings = VLLMSettings(dtype="float32", enforce_eager=True)
    engine = VLLMEngine(folder, tokenizer, {1}, 4096, 12, 1.0, 8, settings)
    print("made", flush=True)
    sys.stdin.read()
"""


def is_running(process):
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())  # a zombie has none
    except OSError:
        return False


def test_vllm_ends_with_a_process_that_is_killed(folders, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    command = [sys.executable, str(script), str(folders[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert b"made\n" in trainer.stdout
        _, *own = family(trainer.pid)
        trainer.kill()
        trainer.wait()
    assert own
    wait_until(lambda: not any(map(is_running, own)))
