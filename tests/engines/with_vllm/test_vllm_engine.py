"""The vLLM engine for real, on the CPU, against forward passes of `transformers`."""

import asyncio
import importlib.util
import json
import logging

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete, make_draws
from transformers import Qwen2ForCausalLM
from vllm_on_cpu import CONTEXT, SLOTS, assert_drawn_from, make_engine, nothing_runs, tokens_of

from rollwise import loops
from rollwise.cli import main
from rollwise.engines.testing import EngineContract
from rollwise.engines.vllm import SEEDS
from rollwise.errors import EngineError
from rollwise.models.loading import adapter_weights
from rollwise.sampling import Draw

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_transformers_at_the_temperature(engine, models, temperature):
    engine.temperature = temperature
    assert_drawn_from(models[0], complete(engine, make_draws(20)), temperature)


@pytest.mark.parametrize("ends", [{END}, {4, 7}])
def test_a_response_ends_with_an_end_token_or_is_cut(engine, tokenizer, ends):
    engine.end_tokens = sorted(ends)
    done = complete(engine, make_draws(40)).values()
    for completion in done:
        ended = completion.tokens[-1] in ends
        assert not ends & {*completion.tokens[:-1]}
        assert completion.truncated is not ended
        assert ended or len(completion.tokens) == LIMIT
        own = completion.tokens[: -1 if ended else None]
        assert completion.text == tokenizer.decode(own, skip_special_tokens=True)
    assert {c.tokens[-1] for c in done if not c.truncated} == ends
    assert any(completion.truncated for completion in done)


def test_seeds_beyond_those_of_vllm_are_folded(engine):
    small, large = Draw("short", 0, 5), Draw("short", 1, SEEDS + 5)
    done = tokens_of(engine, [small, large])
    assert done[small] == done[large]


def test_a_prompt_that_does_not_fit_is_named(engine):
    prompts = PROMPTS | {"endless": [2] * (CONTEXT - LIMIT + 1)}
    message = "'endless' has 4085 tokens, and at most 4084 fit: the context is 4096"
    with pytest.raises(ValueError, match=message):
        complete(engine, [Draw("endless", 0, 1)], prompts)
    prompts["endless"].pop()
    (response,) = complete(engine, [Draw("endless", 0, 1)], prompts).values()
    assert len(response.tokens) <= LIMIT


def test_what_is_cancelled_is_aborted_and_frees_its_slot(engine):
    """Seven endless responses leave one slot, in which another is drawn to its end."""
    draws = make_draws(4)
    wanted = tokens_of(engine, draws)

    async def cancel_endless():
        ends, limit = engine.end_tokens, engine.max_new_tokens
        engine.end_tokens, engine.max_new_tokens = [], 4000
        tasks = [
            asyncio.create_task(engine.complete(draw, PROMPTS[draw.key])) for draw in draws[1:SLOTS]
        ]
        while engine._llm.output_processor.get_num_unfinished_requests() < SLOTS - 1:
            await asyncio.sleep(0)
        engine.end_tokens, engine.max_new_tokens = ends, limit
        assert (await engine.complete(draws[0], PROMPTS["short"])).tokens == wanted[draws[0]]
        assert not await engine._llm.reset_prefix_cache()
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    lost = loops.run(cancel_endless())
    # At least a token of each, in the time that another took to its end.
    assert all(end.tokens >= 1 for end in lost)
    assert tokens_of(engine, draws) == wanted
    assert nothing_runs(engine)


def test_a_draw_that_takes_too_long_is_lost_and_aborted(engine):
    engine.end_tokens, engine.max_new_tokens, engine.draw_timeout = [], 4000, 0.5
    done = complete(engine, make_draws(1)).values()
    assert {lost.reason for lost in done} == {"timed out after 0.5 s"}
    assert any(lost.tokens for lost in done)
    assert nothing_runs(engine)


def test_a_request_that_vllm_refuses_is_lost_and_the_others_are_not(engine):
    empty = Draw("empty", 0, 1)
    done = complete(engine, [empty, *make_draws(1)], PROMPTS | {"empty": []})
    assert "empty" in done.pop(empty).reason
    assert all(response.tokens for response in done.values())


def test_weights_are_taken_over(engine, models):
    draws = make_draws(10)
    before = tokens_of(engine, draws)
    engine.load_weights(models[1].state_dict())
    try:
        done = complete(engine, draws)
        assert as_tokens(done) != before
        assert_drawn_from(models[1], done)
    finally:
        engine.load_weights(models[0].state_dict())
    assert tokens_of(engine, draws) == before


class TestContract(EngineContract):
    prompts = PROMPTS

    @pytest.fixture(autouse=True)
    def one_for_all_tests(self, engine, models, monkeypatch):
        monkeypatch.setattr(engine, "close", lambda: None)
        self.make, self.weights = lambda: engine, models[0].state_dict


def test_a_run_trains_adapters_and_the_engine_follows(folders, tmp_path, caplog):
    """After three steps at a large learning rate both still find the same tokens equally likely."""
    folder = tmp_path / "run"
    settings = {
        "method": "reinforce_ada",
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


def test_adapters_are_taken_over_as_they_are_again_and_again(folders, tokenizer):
    """Each time nothing is left of those before, and nothing that was cached with them."""
    model = get_peft_model(
        Qwen2ForCausalLM.from_pretrained(folders[0]), LoraConfig(r=3, target_modules="all-linear")
    )
    with make_engine(folders[0], tokenizer, adapters=model.peft_config["default"]) as engine:
        for seed in range(2):
            torch.manual_seed(seed)
            for name, weights in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weights.data, std=0.1)
            engine.load_weights(adapter_weights(model))
            assert_drawn_from(model, complete(engine, make_draws(6)))


def test_a_rank_that_vllm_does_not_take(folders, tokenizer):
    with pytest.raises(EngineError, match=r"`model.lora_rank` must be at most 512.* it is 4096"):
        make_engine(folders[0], tokenizer, adapters=LoraConfig(r=4096))
