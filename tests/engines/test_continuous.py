"""Continuous batching: what is filled again, kept and moved."""

import asyncio
import copy
import itertools

import numpy as np
import pytest
import torch
import transformers
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model

from rollwise import loops
from rollwise.config import ModelSettings
from rollwise.engines import attention
from rollwise.engines.continuous import PrefixCache
from rollwise.engines.kv_cache import SegmentedCache
from rollwise.engines.tokens import TokenSampler
from rollwise.engines.transformers import TransformersEngine, unfit_reason
from rollwise.engines.whole_batches import WholeBatch
from rollwise.models.loading import load_model


def input_shapes(engine):
    """The shapes of what the slots' model is run on from now on."""
    shapes = []
    engine._batch._forward._twin.get_input_embeddings().register_forward_pre_hook(
        lambda _, args: shapes.append(tuple(args[0].shape))
    )
    return shapes


def test_a_slot_is_filled_again_while_others_continue(model, tokenizer):
    """Steps run on all rows but the few that are yet to be reported, and on no other."""
    engine = TransformersEngine(model, tokenizer, 40, batch_size=32)
    shapes, advance = input_shapes(engine), engine._advance
    rows_while_waiting, computed = [], 0

    def advance_and_count():
        nonlocal computed
        ended = advance()
        steps = [rows for rows, width in shapes if width == 1]
        computed += sum(steps)
        if engine._waiting:
            rows_while_waiting.extend(steps)
        shapes.clear()
        return ended

    engine._advance = advance_and_count
    responses = complete(engine, make_draws(40))
    assert computed == sum(len(response.tokens) - 1 for response in responses.values())
    assert np.mean(rows_while_waiting) >= 32 - 4
    assert max(rows_while_waiting) == 32


def test_a_prompt_is_run_once_however_late_its_draws_come(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT)
    shapes = input_shapes(engine)
    complete(engine, make_draws(2))
    complete(engine, make_draws(2, seed=1))
    assert [rows for rows, width in shapes if width > 1] == [3]
    engine.load_weights({})
    complete(engine, make_draws(1, ["short"]))
    assert [rows for rows, width in shapes if width > 1] == [3, 1]


def test_kept_prompts_are_bounded(model, tokenizer, monkeypatch):
    monkeypatch.setattr("rollwise.engines.continuous.KEPT_TOKENS", 40)
    engine = TransformersEngine(model, tokenizer, LIMIT)
    prompts = {i: (2 + i % 15, 2 + i // 15, *PROMPTS["long"][2:]) for i in range(20)}
    wanted = complete(TransformersEngine(model, tokenizer, LIMIT), make_draws(2, prompts), prompts)
    for key in prompts:
        found = complete(engine, draws := make_draws(2, {key, 0}), prompts)
        assert as_tokens(found) == {draw: wanted[draw].tokens for draw in draws}
        assert sum(map(len, engine._batch._prompts._known)) <= 40 + 2 * 9


def test_what_is_cancelled_says_what_it_had_drawn_and_leaves_the_others_alone(model, tokenizer):
    """Two of four responses go, after the token of the prefill and some steps; one waits."""
    endless = copy.deepcopy(model)
    endless.generation_config = transformers.GenerationConfig(eos_token_id=17)
    mute = copy.deepcopy(tokenizer)
    mute.eos_token = None
    engine = TransformersEngine(endless, mute, 20, batch_size=4)
    draws = make_draws(5, ["short"])

    async def cancel_some():
        tasks = [asyncio.create_task(engine.complete(d, PROMPTS["short"])) for d in draws]
        while not engine._batch.drawing:
            await asyncio.sleep(0)
        drawn = int(engine._batch._drawn.max())
        for task in (tasks[0], tasks[1], tasks[4]):
            task.cancel()
        return drawn, await asyncio.gather(*tasks, return_exceptions=True)

    drawn, (first, second, *kept, waiting) = loops.run(cancel_some())
    assert 1 < drawn < 20
    assert (first.tokens, second.tokens, waiting.tokens) == (drawn, drawn, 0)
    alone = complete(TransformersEngine(endless, mute, 20), draws[2:4])
    assert [response.tokens for response in kept] == [*as_tokens(alone).values()]


def test_memory_stays_flat_over_steps(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, 40, batch_size=16)
    sizes = []
    for step in range(3):
        complete(engine, make_draws(20, seed=step))
        engine.load_weights({})
        sizes.append(engine._batch._cache.allocated)
    assert sizes[0]
    assert sizes[1:] == [sizes[0]] * 2


@pytest.mark.parametrize("at", [1, 9])
def test_where_memory_does_not_suffice_fewer_are_drawn_and_no_token_is_drawn_twice(
    model, tokenizer, monkeypatch, caplog, at
):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=16)
    draws = make_draws(10)
    wanted = as_tokens(complete(TransformersEngine(model, tokenizer, LIMIT), draws))
    begin_step, sample = SegmentedCache.begin_step, TokenSampler.sample
    steps, sampled = itertools.count(1), []

    def bounded(cache):
        if next(steps) >= at and len(cache.order) > 5:
            raise torch.OutOfMemoryError("too much")
        return begin_step(cache)

    def counted(sampler, logits, uniforms):
        sampled.append(len(logits))
        return sample(sampler, logits, uniforms)

    monkeypatch.setattr(SegmentedCache, "begin_step", bounded)
    monkeypatch.setattr(TokenSampler, "sample", counted)
    assert as_tokens(complete(engine, draws)) == wanted
    assert engine.slots == 4
    assert [r.args for r in caplog.records] == [(8,), (4,)]
    assert sum(sampled) == sum(map(len, wanted.values()))


@pytest.mark.parametrize("place", [(PrefixCache, "run"), (SegmentedCache, "fill")])
def test_draws_that_memory_does_not_suffice_to_begin_are_begun_later(
    model, tokenizer, monkeypatch, place
):
    engine, draws = TransformersEngine(model, tokenizer, LIMIT, batch_size=16), make_draws(10)
    wanted = as_tokens(complete(TransformersEngine(model, tokenizer, LIMIT), draws))
    whole = getattr(*place)

    def bounded(cache, prompts):
        if engine.slots > 4:
            raise torch.OutOfMemoryError("too much")
        return whole(cache, prompts)

    monkeypatch.setattr(*place, bounded)
    assert as_tokens(complete(engine, draws)) == wanted
    assert engine.slots == 4


def test_tokens_that_whole_batches_lose_are_counted(tokenizer, monkeypatch):
    config = transformers.MambaConfig(
        vocab_size=17, hidden_size=32, num_hidden_layers=2, eos_token_id=END
    )
    model = transformers.MambaForCausalLM(config).eval()
    engine, draws = TransformersEngine(model, tokenizer, LIMIT, batch_size=8), make_draws(8)
    wanted = as_tokens(complete(TransformersEngine(model, tokenizer, LIMIT), draws))
    sample, calls = TokenSampler.sample, itertools.count(1)

    def bounded(sampler, logits, uniforms):
        if next(calls) == 3:
            raise torch.OutOfMemoryError("too much")
        return sample(sampler, logits, uniforms)

    monkeypatch.setattr(TokenSampler, "sample", bounded)
    assert as_tokens(complete(engine, draws)) == wanted
    assert (engine.slots, engine.lost_tokens) == (4, 2 * 8)


def test_other_models_draw_in_batches_and_it_is_said(tokenizer, caplog):
    """Gemma 2 caps its logits of attention; Mamba has no attention, and another kind of cache."""
    shape = {"vocab_size": 17, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": END}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    config = transformers.Gemma2Config(**shape, **heads, intermediate_size=32)
    capped = transformers.Gemma2ForCausalLM(config)
    recurrent = transformers.MambaForCausalLM(transformers.MambaConfig(**shape))
    for model, reason in ((capped, "softcap"), (recurrent, "does not go through the interface")):
        engine = TransformersEngine(model.eval(), tokenizer, LIMIT)
        assert isinstance(engine._batch, WholeBatch)
        assert reason in caplog.text
        draws = make_draws(2)
        together = as_tokens(complete(engine, draws))
        assert together == {d: as_tokens(complete(engine, [d]))[d] for d in draws}


def test_a_model_whose_logits_would_differ_does_not_fit():
    class Biased(transformers.Qwen2ForCausalLM):
        """Adds a bias that only whole sequences get."""

        def forward(self, input_ids, **options):
            output = super().forward(input_ids=input_ids, **options)
            output.logits = output.logits + (input_ids.shape[1] > 1)
            return output

    torch.manual_seed(0)
    assert unfit_reason(Biased(make_model().config)) == "its logits differ in slots"


def test_a_model_in_half_precision_is_tried_in_full(monkeypatch):
    """Its own rounding, of up to a hundredth, would hide that attention is scaled by 1.1."""
    model, _ = load_model(ModelSettings(device="cpu"))
    model.to(torch.bfloat16)
    assert unfit_reason(model) is None
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    own = attention.causal_attention
    scaled = lambda inputs: own(inputs._replace(scale=1.1 * inputs.scale))  # noqa: E731
    monkeypatch.setattr(attention, "causal_attention", scaled)
    assert unfit_reason(model) == "its logits differ in slots"


@pytest.mark.parametrize(("kind", "fits"), [("mixtral", True), ("qwen2_moe", False)])
def test_a_window_that_is_in_the_masks_alone_does_not_fit(kind, fits):
    """Qwen2-MoE does not say it to its attention; it is wider than what is tried."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 17}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 64}
    own = {} if fits else {"use_sliding_window": True, "max_window_layers": 4}
    config = transformers.AutoConfig.for_model(kind, **sizes, **heads, **own)
    reason = unfit_reason(transformers.AutoModelForCausalLM.from_config(config))
    assert fits if reason is None else "its window is in its masks alone" in reason


def test_what_shares_a_batch_does_not_depend_on_what_was_drawn_before(tokenizer):
    """A resumed run, whose engine is new, rounds as one that never stopped."""
    model, rows = make_model(), {}
    for before in ([], make_draws(7, ["before"])):
        engine = TransformersEngine(model, tokenizer, 40, batch_size=16)
        complete(engine, before, {"before": [4, 8, 6]})
        shapes = input_shapes(engine)
        complete(engine, make_draws(20))
        rows[len(before)] = shapes, engine._batch._free
    assert rows[0] == rows[7]
