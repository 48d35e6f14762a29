"""Continuous batching: what is filled again, kept and moved."""

import copy

import numpy as np
import torch
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    MambaConfig,
    MambaForCausalLM,
    Qwen2ForCausalLM,
)

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


def test_a_prompt_that_has_changed_is_run_again(model, tokenizer):
    engine, fresh = (TransformersEngine(model, tokenizer, LIMIT) for _ in range(2))
    draws, changed = make_draws(3, ["short"]), {"short": PROMPTS["long"]}
    complete(engine, draws)
    found, wanted = (as_tokens(complete(each, draws, changed)) for each in (engine, fresh))
    assert found == wanted


def test_kept_prompts_are_bounded(model, tokenizer, monkeypatch):
    monkeypatch.setattr("rollwise.engines.prefixes.KEPT_TOKENS", 40)
    engine = TransformersEngine(model, tokenizer, LIMIT)
    prompts = {key: PROMPTS["long"] for key in range(20)}
    for key in prompts:
        engine.submit(make_draws(1, [key]), prompts)
        complete(engine, [])
        assert sum(len(prefix.tokens) for prefix in engine._batch._prompts._known.values()) <= 40
    assert list(engine._batch._prompts._known) == [16, 17, 18, 19]


def test_what_is_cancelled_says_what_it_had_drawn_and_leaves_the_others_alone(model, tokenizer):
    """Two of four responses go, after one token of the prefill and six of steps."""
    endless = copy.deepcopy(model)
    endless.generation_config = GenerationConfig(eos_token_id=17)
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
        stores = [bucket.store for bucket in engine._batch._cache._buckets]
        sizes.append([np.prod(store.shape) for store in stores if store is not None])
    assert sizes[0]
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


def test_new_weights_begin_responses_anew(tokenizer):
    model, learner = make_model(), make_model(seed=1)
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8)
    draws = make_draws(8)
    engine.submit(draws, PROMPTS)
    early = {c.draw: c.tokens for c in engine.wait()}
    assert engine._batch.drawing
    engine.load_weights(learner.state_dict())
    late = {c.draw: c.tokens for completions in iter(engine.wait, []) for c in completions}
    assert early.keys() | late.keys() == set(draws)
    wanted = as_tokens(complete(TransformersEngine(learner, tokenizer, LIMIT), draws))
    assert late == {draw: wanted[draw] for draw in late}


def test_other_models_draw_in_batches_and_it_is_said(tokenizer, caplog):
    """Gemma 2 caps its logits of attention; Mamba has no attention, and another kind of cache."""
    shape = {"vocab_size": 17, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": END}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    capped = Gemma2ForCausalLM(Gemma2Config(**shape, **heads, intermediate_size=32))
    recurrent = MambaForCausalLM(MambaConfig(**shape))
    for model, reason in ((capped, "softcap"), (recurrent, "does not go through the interface")):
        engine = TransformersEngine(model.eval(), tokenizer, LIMIT)
        assert isinstance(engine._batch, WholeBatch)
        assert reason in caplog.text
        draws = make_draws(2)
        together = as_tokens(complete(engine, draws))
        assert together == {d: as_tokens(complete(engine, [d]))[d] for d in draws}


def test_a_model_whose_logits_would_differ_does_not_fit():
    class Biased(Qwen2ForCausalLM):
        """Adds a bias that only whole sequences get."""

        def forward(self, input_ids, **options):
            output = super().forward(input_ids=input_ids, **options)
            output.logits = output.logits + (input_ids.shape[1] > 1)
            return output

    torch.manual_seed(0)
    assert unfit_reason(Biased(make_model().config)) == "its logits differ in slots"


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
