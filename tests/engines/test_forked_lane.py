"""Lanes in processes of their own: what they share, and how they end."""

import contextlib
import copy
import gc
import os
import signal
import subprocess
import sys

import pytest
import torch
from tiny_models import LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model

from rollwise.engines.forked_lane import MirroredModel
from rollwise.engines.transformers import TransformersEngine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="lanes are forked on Linux alone")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mirrored_model_computes_the_same_and_follows(dtype):
    model = make_model().to(dtype)
    mirrored, ids = MirroredModel(model), torch.tensor([[5, 9, 3]])
    tensors = dict(mirrored.model.named_parameters())
    assert all(
        tensors[name].data_ptr() != tensor.data_ptr() for name, tensor in model.named_parameters()
    )
    with torch.inference_mode():
        assert torch.equal(mirrored.model(ids).logits, model(ids).logits)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    with torch.inference_mode():
        assert not torch.equal(mirrored.model(ids).logits, model(ids).logits)
        mirrored.update()
        assert torch.equal(mirrored.model(ids).logits, model(ids).logits)


def test_lanes_draw_by_the_weights_that_were_loaded_last(model, tokenizer):
    model = copy.deepcopy(model)
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=2)
    draws = make_draws(10)
    before = as_tokens(complete(engine, draws))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    engine.load_weights({})
    after = as_tokens(complete(engine, draws))
    assert after != before
    assert after == as_tokens(complete(TransformersEngine(model, tokenizer, LIMIT, lanes=1), draws))


def test_a_cancelled_response_leaves_the_lane_that_draws_it(model, tokenizer):
    """Three tokens are drawn of each: by the prompt's run, and by two steps that are under way."""
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=2)
    draws = make_draws(8, ["short"])
    engine.submit(draws, PROMPTS)
    engine._fill()
    (lane,) = engine._forked
    elsewhere = list(lane.drawing)[:3]
    assert len(lane.drawing) == 4
    lane.begin_to_draw(2)
    assert engine.cancel(elsewhere) == 3 * 3
    assert engine.cancel(elsewhere) == 0
    assert engine.free_slots == 3
    done = {c.draw: c for completions in iter(engine.wait, []) for c in completions}
    kept = [draw for draw in draws if draw not in elsewhere]
    alone = complete(TransformersEngine(model, tokenizer, LIMIT, lanes=1), kept)
    assert as_tokens(done) == as_tokens(alone)


def test_a_response_that_ends_when_it_is_cancelled_is_dropped(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=2)
    draws = make_draws(8, ["short"])
    engine.submit(draws, PROMPTS)
    engine._fill()
    (lane,) = engine._forked
    lane.begin_to_draw(LIMIT)  # to the end of all
    dropped, *others = lane.drawing
    engine.cancel([dropped])
    assert {response.draw for response in lane.drawn()} == set(others)
    assert lane.free_slots == 4
    engine.submit([dropped], PROMPTS)
    done = {c.draw for completions in iter(engine.wait, []) for c in completions}
    assert done == set(draws) - set(others)


def test_a_lane_ends_with_its_engine(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=3)
    processes = [lane._process for lane in engine._forked]
    assert all(process.is_alive() for process in processes)
    del engine
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_a_lane_that_is_killed_is_said_to_be(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=2)
    os.kill(engine._forked[0]._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"process of the engine ended .* exit code -9"):
        complete(engine, make_draws(8))


def test_what_fails_in_a_lane_fails_here(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, lanes=2)
    (lane,) = engine._forked
    lane.fill({draw: [10**6] for draw in make_draws(1)})
    with pytest.raises(IndexError):
        lane.drawn()


SCRIPT = """
import faulthandler, os, signal, sys
faulthandler.dump_traceback_later(60)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's parent ignores it
sys.path.insert(0, {tests!r})
from tiny_models import LIMIT, make_model
from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
from rollwise.engines.transformers import TransformersEngine
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({{"a": 1}}, "a")))
engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=8, lanes=3)
print(*(lane._process.pid for lane in engine._forked), flush=True)
os.kill(os.getpid(), {signal})
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_lanes_do_not_outlive_a_process_that_is_killed(ending):
    script = SCRIPT.format(tests=os.path.dirname(__file__), signal=int(ending))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        # The pipe is read to its end, which comes when the last process that holds it has ended.
        pids, _ = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert len(pids.split()) == 2
    assert process.returncode == -ending
