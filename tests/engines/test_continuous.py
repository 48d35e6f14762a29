"""Continuous batching: what is filled again, kept and moved."""

import copy

import numpy as np
import pytest
import torch
import transformers
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model

from rollwise.engines.kv_cache import BucketedCache
from rollwise.engines.transformers import TransformersEngine, unfit_reason
from rollwise.engines.whole_batches import WholeBatch


def input_shapes(engine):
    """The shapes of what the slots' model is run on from now on."""
    shapes = []
    engine._batch._forward._twin.get_input_embeddings().register_forward_pre_hook(
        lambda _, args: shapes.append(tuple(args[0].shape))
    )
    return shapes


def test_a_slot_is_filled_again_while_others_go_on(model, tokenizer):
    """Steps run on all rows but the few that are yet to be reported, and on no other."""
    engine = TransformersEngine(model, tokenizer, 40, batch_size=32)
    shapes = input_shapes(engine)
    draws = make_draws(40)
    engine.submit(draws, PROMPTS)
    rows_while_waiting, responses, computed = [], [], 0
    while completions := engine.wait():
        steps = [rows for rows, width in shapes if width == 1]
        computed += sum(steps)
        if engine._waiting:
            rows_while_waiting += steps
        shapes.clear()
        responses += completions
        assert engine.free_slots == max(0, 32 - len(engine._batch.drawing) - len(engine._waiting))
    assert {c.draw for c in responses} == set(draws)
    assert computed == sum(len(c.tokens) - 1 for c in responses)
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
    monkeypatch.setattr("rollwise.engines.prefixes.KEPT_TOKENS", 40)
    engine = TransformersEngine(model, tokenizer, LIMIT)
    prompts = {i: (2 + i % 15, 2 + i // 15, *PROMPTS["long"][2:]) for i in range(20)}
    for key in prompts:
        engine.submit(make_draws(1, [key]), prompts)
        complete(engine, [])
        assert sum(map(len, engine._batch._prompts._known)) <= 40
    assert list(engine._batch._prompts._known) == list(prompts.values())[-4:]


def test_what_is_cancelled_says_what_it_had_drawn_and_leaves_the_others_alone(model, tokenizer):
    """Two of four responses go, after one token of the prefill and six of steps."""
    endless = copy.deepcopy(model)
    endless.generation_config = transformers.GenerationConfig(eos_token_id=17)
    mute = copy.deepcopy(tokenizer)
    mute.eos_token = None
    engine = TransformersEngine(endless, mute, 20, batch_size=4)
    draws = make_draws(4, ["short"])
    engine.submit(draws, PROMPTS)
    engine._fill()
    with torch.inference_mode():
        for _ in range(6):
            engine._batch._step()
    waiting = make_draws(1, ["middle"])
    engine.submit(waiting, PROMPTS)
    assert engine.cancel(draws[:2] + waiting) == 14
    alone = complete(TransformersEngine(endless, mute, 20), draws[2:])
    assert as_tokens(complete(engine, [])) == as_tokens(alone)


def test_memory_stays_flat_over_steps(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, 40, batch_size=16)
    sizes = []
    for step in range(3):
        complete(engine, make_draws(20, seed=step))
        engine.load_weights({})
        sizes.append([bucket.store.numel() for bucket in engine._batch._cache._buckets])
    assert any(sizes[0])
    assert sizes[1:] == [sizes[0]] * 2


def test_where_memory_does_not_suffice_fewer_are_drawn_at_a_time(
    model, tokenizer, monkeypatch, caplog
):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=16)
    draws = make_draws(10)
    wanted = as_tokens(complete(TransformersEngine(model, tokenizer, LIMIT), draws))
    begin_step = BucketedCache.begin_step

    def bounded(cache):
        if len(cache.order) > 5:
            raise torch.OutOfMemoryError("too much")
        return begin_step(cache)

    monkeypatch.setattr(BucketedCache, "begin_step", bounded)
    assert as_tokens(complete(engine, draws)) == wanted
    assert engine.batch_size == 4
    assert [r.args for r in caplog.records] == [(8,), (4,)]


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
