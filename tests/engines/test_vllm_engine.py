"""The vLLM engine for real, on the CPU, against forward passes of `transformers`."""

import contextlib
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.cli import main
from rollwise.config import VLLMSettings
from rollwise.engines import Completion, LostDraw
from rollwise.engines.reaper import marked
from rollwise.engines.testing import EngineContract
from rollwise.engines.vllm import SEEDS, VLLMEngine
from rollwise.errors import EngineError
from rollwise.grading.grader import finished
from rollwise.models.loading import model_path
from rollwise.sampling import Balanced, Draw, FixedCount, RolloutSession, Rounds, Streamed
from rollwise.sampling.session import draw_seed
from rollwise.step.session import run_session

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]

END, CONTEXT, LIMIT, SLOTS = 1, 4096, 12, 8
PROMPTS = {"short": [5, 9], "middle": [3, 14, 4, 7, 11], "long": [12, 6, 5, 9, 13, 4, 15, 3, 7]}
SETTINGS = VLLMSettings(dtype="float32", enforce_eager=True, restarts=1)


@pytest.fixture(scope="module", autouse=True)
def environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    """Makes the folder of a random model of 17 tokens, by its seed; heads are of 32."""

    def make(seed):
        folder = tmp_path_factory.mktemp("model")
        torch.manual_seed(seed)
        config = Qwen2Config(
            vocab_size=17,
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=CONTEXT,
            initializer_range=0.15,
            pad_token_id=0,
            eos_token_id=END,
            bos_token_id=None,
        )
        Qwen2ForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return [make(seed) for seed in range(2)]


@pytest.fixture(scope="module")
def models(folders):
    return [Qwen2ForCausalLM.from_pretrained(folder) for folder in folders]


def make_engine(folder, tokenizer, **settings):
    options = replace(SETTINGS, **settings)
    limits = (CONTEXT, LIMIT, 1.0, SLOTS)
    return VLLMEngine(str(folder), tokenizer, {END}, *limits, options)


@pytest.fixture(scope="module")
def shared_engine(folders, tokenizer):
    with make_engine(folders[0], tokenizer) as engine:
        yield engine
    engine.close()  # once more does no harm


@pytest.fixture
def engine(shared_engine, monkeypatch):
    """One engine for all tests; what a test sets on it is taken back."""
    for name in ("max_new_tokens", "temperature", "end_tokens", "settings"):
        monkeypatch.setattr(shared_engine, name, getattr(shared_engine, name))
    yield shared_engine
    assert shared_engine.wait() == []
    assert shared_engine.free_slots == SLOTS


def make_draws(count, keys=PROMPTS, seed=0):
    return [Draw(key, i, draw_seed(seed, 0, key, i)) for key in keys for i in range(count)]


def complete(engine, draws, prompts=PROMPTS):
    """Everything that comes of the draws: draw -> outcome, each once."""
    engine.submit(draws, prompts)
    done = {}
    while outcomes := engine.wait():
        assert not done.keys() & {outcome.draw for outcome in outcomes}
        done |= {outcome.draw: outcome for outcome in outcomes}
    return done


def tokens_of(engine, draws):
    return {draw: completion.tokens for draw, completion in complete(engine, draws).items()}


@torch.no_grad()
def plain_logprobs(model, completion, temperature):
    prompt = PROMPTS[completion.draw.key]
    logits = model(torch.tensor([[*prompt, *completion.tokens]])).logits[0, len(prompt) - 1 : -1]
    chosen = torch.tensor(completion.tokens)[:, None]
    return (logits / temperature).log_softmax(dim=1).gather(1, chosen).squeeze(1).numpy()


def make_endless(engine):
    """Let responses be too long to be done before a test is."""
    engine.end_tokens, engine.max_new_tokens = [], 4000


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_transformers_at_the_temperature(engine, models, temperature):
    engine.temperature = temperature
    done = complete(engine, make_draws(20))
    assert len(done) == 60
    for completion in done.values():
        wanted = plain_logprobs(models[0], completion, temperature)
        np.testing.assert_allclose(completion.logprobs, wanted, atol=1e-4)
        assert completion.logprobs.dtype == np.float32


def test_responses_do_not_hang_on_order_and_company(engine):
    draws = make_draws(20)
    together = tokens_of(engine, draws)
    assert len({tuple(tokens) for tokens in together.values()}) > 30
    assert tokens_of(engine, draws[::-1]) == together
    for draw in draws[::6]:
        assert tokens_of(engine, [draw]) == {draw: together[draw]}


def test_a_response_ends_with_its_end_token_or_is_cut(engine, tokenizer):
    done = complete(engine, make_draws(40)).values()
    for completion in done:
        ended = completion.tokens[-1] == END
        assert END not in completion.tokens[:-1]
        assert completion.truncated is not ended
        assert ended or len(completion.tokens) == LIMIT
        assert completion.text == tokenizer.decode(completion.tokens, skip_special_tokens=True)
    assert {completion.truncated for completion in done} == {True, False}


def test_every_end_token_counts_and_no_other(engine):
    engine.end_tokens = [4, 7]
    done = complete(engine, make_draws(20)).values()
    assert {c.tokens[-1] for c in done if not c.truncated} == {4, 7}
    assert not any({4, 7} & set(completion.tokens[:-1]) for completion in done)
    assert any(END in completion.tokens for completion in done)


def test_seeds_beyond_those_of_vllm_are_folded(engine):
    small, large = Draw("short", 0, 5), Draw("short", 1, SEEDS + 5)
    done = tokens_of(engine, [small, large])
    assert done[small] == done[large]


def test_a_prompt_that_does_not_fit_is_named_and_nothing_is_drawn(engine):
    prompts = PROMPTS | {"endless": [2] * (CONTEXT - LIMIT + 1)}
    message = "'endless' has 4085 tokens, and at most 4084 fit: the context is 4096"
    with pytest.raises(ValueError, match=message):
        engine.submit([*make_draws(1), Draw("endless", 0, 1)], prompts)
    assert engine.free_slots == SLOTS
    prompts["endless"].pop()
    (completion,) = complete(engine, [Draw("endless", 0, 1)], prompts).values()
    assert len(completion.tokens) <= LIMIT


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
    return engine._call(engine._llm.is_sleeping())


def test_it_wakes_up_with_the_latest_weights(sleeper, models):
    draws, later = make_draws(10), make_draws(10, seed=1)
    before = tokens_of(sleeper, draws)
    sleeper.load_weights(models[1].state_dict())
    others = tokens_of(sleeper, later)
    sleeper.load_weights(models[0].state_dict())
    sleeper.submit(draws, PROMPTS)
    sleeper.sleep()  # once what is in flight has ended
    assert is_asleep(sleeper)
    under_way = {}
    while outcomes := sleeper.wait():
        under_way |= {outcome.draw: outcome.tokens for outcome in outcomes}
    assert under_way == before
    sleeper.load_weights(models[1].state_dict())
    assert not is_asleep(sleeper)
    assert tokens_of(sleeper, later) == others != before
    sleeper.sleep()
    assert is_asleep(sleeper)
    assert tokens_of(sleeper, later) == others, "the next draw wakes it up"
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
            sleeper.submit(make_draws(1), PROMPTS)
    complete(sleeper, make_draws(1))


def test_a_cpu_has_no_memory_to_free(folders, tokenizer):
    with pytest.raises(EngineError, match=r"engine.sleep_level must be 0 here.*\(cpu\)"):
        make_engine(folders[0], tokenizer, sleep_level=1)


def nothing_runs(engine):
    """vLLM can drop all that it has cached only when no request uses any of it."""
    return engine._call(engine._llm.reset_prefix_cache())


def test_what_is_cancelled_is_aborted_and_frees_its_slot(engine):
    draws = make_draws(4)
    wanted = tokens_of(engine, draws)
    make_endless(engine)
    engine.submit(draws[1:SLOTS], PROMPTS)
    engine.end_tokens, engine.max_new_tokens = [END], LIMIT
    assert engine.free_slots == 1
    engine.submit(draws[:1], PROMPTS)
    assert [outcome.draw for outcome in engine.wait()] == draws[:1]
    assert not nothing_runs(engine)
    # At least a token of each, in the time that another took to its end.
    assert engine.cancel([*draws, Draw("short", 99, 1)]) >= SLOTS - 1
    assert engine.cancel(draws) == 0
    assert engine.free_slots == SLOTS
    assert engine.wait() == []
    # What was cancelled can be drawn again.
    assert tokens_of(engine, draws) == wanted
    assert nothing_runs(engine)


def test_a_draw_that_takes_too_long_is_lost_and_aborted(engine, caplog):
    make_endless(engine)
    engine.settings = replace(SETTINGS, draw_timeout=0.05)
    done = complete(engine, draws := make_draws(1))
    assert done == {draw: LostDraw(draw, "not done after 0.05 s") for draw in draws}
    assert "draws were lost: not done after 0.05 s" in caplog.text
    assert nothing_runs(engine)


def test_a_request_that_vllm_refuses_is_lost_and_the_others_are_not(engine):
    empty = Draw("empty", 0, 1)
    done = complete(engine, [empty, *make_draws(1)], PROMPTS | {"empty": []})
    assert isinstance(done[empty], LostDraw)
    assert "empty" in done.pop(empty).reason
    assert all(isinstance(outcome, Completion) for outcome in done.values())


def test_weights_are_taken_over_once_what_is_under_way_has_ended(engine, models):
    draws, later = make_draws(10), make_draws(10, seed=1)
    before, before_later = tokens_of(engine, draws), tokens_of(engine, later)
    engine.submit(draws, PROMPTS)
    engine.load_weights(models[1].state_dict())
    under_way = {}
    while outcomes := engine.wait():
        under_way |= {outcome.draw: outcome.tokens for outcome in outcomes}
    assert under_way == before
    try:
        done = complete(engine, later)
        assert {draw: c.tokens for draw, c in done.items()} != before_later
        for completion in done.values():
            wanted = plain_logprobs(models[1], completion, 1.0)
            np.testing.assert_allclose(completion.logprobs, wanted, atol=1e-4)
    finally:
        engine.load_weights(models[0].state_dict())
    assert tokens_of(engine, draws) == before


def grade(completions):
    """A response of an even number of tokens is correct."""
    return [finished(float(len(completion.tokens) % 2 == 0)) for completion in completions]


class TestContract(EngineContract):
    prompts = PROMPTS

    @pytest.fixture(autouse=True)
    def one_for_all_tests(self, engine, models):
        self.shared, self.loaded = engine, models[0].state_dict()

    @contextlib.contextmanager
    def engine(self):
        yield self.shared

    def weights(self):
        return self.loaded


def test_a_streamed_session_gets_what_single_draws_give(engine):
    session = RolloutSession(list(PROMPTS), Balanced(2, 2), Streamed(max_samples=16), seed=3)
    run_session(session, engine, PROMPTS, grade)
    draws = [Draw(key, i, draw_seed(3, 0, key, i)) for key in PROMPTS for i in range(16)]
    single = tokens_of(engine, draws)
    for key, pool in session.pools.items():
        assert pool.exit_reason in ("satisfied", "exhausted")
        found = [response.tokens for response in pool.responses]
        assert found == [single[draw] for draw in draws if draw.key == key][: len(pool)]
    assert session.failures == 0


def kill(engine):
    """End vLLM's process as the kernel does where memory runs out."""
    (process,) = engine._llm.engine_core.resources.engine_manager.processes
    os.kill(process.pid, signal.SIGKILL)
    process.join()


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

        def kill_and_grade(completions):
            if not graded:
                kill(mortal)
            graded.extend(completion.draw for completion in completions)
            return grade(completions)

        session = RolloutSession(list(PROMPTS), FixedCount(16), Rounds(16, rounds=1), seed=0)
        run_session(session, mortal, PROMPTS, kill_and_grade)
        assert len(graded) == len(set(graded)) == 48
        assert session.failures > 0
        assert session.lost == 0
        assert mortal.restarts == 1
        for pool in session.pools.values():
            assert [r.draw.index for r in pool.responses] == list(range(16))
            assert all(r.tokens == wanted[r.draw] for r in pool.responses)
        assert any("EngineDeadError" in record.getMessage() for record in caplog.records)

        kill(mortal)
        with pytest.raises(EngineError, match="died 2 times"):
            complete(mortal, draws)
            complete(mortal, draws)
        assert mortal.free_slots == SLOTS


def test_a_restart_that_fails_is_an_error_each_time_and_may_succeed_later(
    engine, folders, models, tokenizer, tmp_path
):
    draws = make_draws(4)
    engine.load_weights(models[1].state_dict())
    wanted = tokens_of(engine, draws)
    engine.load_weights(models[0].state_dict())
    with make_engine(folders[0], tokenizer, restarts=5) as mortal:
        mortal.path = str(tmp_path / "moved")
        kill(mortal)
        with pytest.raises(EngineError, match="did not start"):
            while complete(mortal, draws):  # lost, until it is known that the process has died
                pass
        mortal.sleep()
        with pytest.raises(EngineError, match="did not start"):
            mortal.submit(draws, PROMPTS)
        with pytest.raises(EngineError, match="did not start"):
            mortal.load_weights(models[1].state_dict())
        assert (mortal.free_slots, mortal.wait()) == (SLOTS, [])
        mortal.path = str(folders[0])
        assert tokens_of(mortal, draws) == wanted
        mortal.settings = replace(mortal.settings, restarts=mortal.restarts)
        kill(mortal)
        with pytest.raises(EngineError, match="died 5 times, or was not started again"):
            while complete(mortal, draws):
                pass


def test_a_model_that_vllm_cannot_load_is_an_error(tmp_path, tokenizer):
    with pytest.raises(EngineError, match="did not start"):
        make_engine(tmp_path / "nothing", tokenizer)


def test_a_run_trains_adapters_and_the_engine_follows(folders, tmp_path, caplog):
    """After three steps at a large learning rate both still find the same tokens equally likely."""
    folder = tmp_path / "run"
    settings = {
        "steps": "3",
        "model.path": str(folders[0]),
        "model.device": "cpu",
        "model.lora_rank": "4",
        "engine.type": "vllm",
        "engine.max_new_tokens": "16",
        "engine.batch_size": "16",
        "engine.dtype": "float32",
        "engine.enforce_eager": "true",
        "learner.learning_rate": "1e-2",
        "learner.warmup_updates": "0",
        "group.zero_variance": "keep",
        "advantage.objective": "grpo",
        "schedule.type": "streamed",
        "prompts.batch_size": "4",
        "data.problems": "32",
        "evaluation.problems": "8",
        "evaluation.samples": "2",
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    with caplog.at_level(logging.WARNING):
        assert main(["train", "--output", str(folder), *options]) == 0
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    assert len(steps) == 3
    for step in steps:
        assert step["lost_draws"] == step["failed_draws"] == 0
        assert step["sampler_gap"] < 1e-4
        assert step["importance_weight"] == pytest.approx(1, abs=1e-4)


KILLED = """
import sys
from transformers import PreTrainedTokenizerFast
from rollwise.config import VLLMSettings
from rollwise.engines.vllm import VLLMEngine

if __name__ == "__main__":
    folder = sys.argv[1]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    settings = VLLMSettings(dtype="float32", enforce_eager=True)
    engine = VLLMEngine(folder, tokenizer, {1}, 4096, 12, 1.0, 8, settings)
    print("mark", engine._reaper._mark, flush=True)
    sys.stdin.read()
"""


def test_vllm_ends_with_a_process_that_is_killed(folders, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    command = [sys.executable, str(script), str(folders[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        lines = (line.decode().split() for line in trainer.stdout)
        mark = next(words[1] for words in lines if words[:1] == ["mark"])
        assert marked(mark)
        trainer.kill()
        trainer.wait()
    ends = time.monotonic() + 120
    while marked(mark):
        assert time.monotonic() < ends
        time.sleep(0.1)
