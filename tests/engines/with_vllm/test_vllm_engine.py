"""The vLLM engine for real, on the CPU, against forward passes of `transformers`."""

import contextlib
import importlib.util
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from tiny_models import END, LIMIT, PROMPTS, complete, make_draws
from vllm_on_cpu import CONTEXT, SETTINGS, SLOTS, plain_logprobs, tokens_of

from rollwise.cli import main
from rollwise.engines import Completion, LostDraw
from rollwise.engines.testing import EngineContract
from rollwise.engines.vllm import SEEDS
from rollwise.sampling import Draw

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]


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


@pytest.mark.parametrize("ends", [{END}, {4, 7}])
def test_a_response_ends_with_an_end_token_or_is_cut(engine, tokenizer, ends):
    engine.end_tokens = sorted(ends)
    done = complete(engine, make_draws(40)).values()
    for completion in done:
        ended = completion.tokens[-1] in ends
        assert not ends & {*completion.tokens[:-1]}
        assert completion.truncated is not ended
        assert ended or len(completion.tokens) == LIMIT
        assert completion.text == tokenizer.decode(completion.tokens, skip_special_tokens=True)
    assert {c.tokens[-1] for c in done if not c.truncated} == ends
    assert any(completion.truncated for completion in done)


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
    assert done == {draw: LostDraw(draw, "timed out after 0.05 s") for draw in draws}
    assert "draws were lost: timed out after 0.05 s" in caplog.text
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
