"""Forked processes that draw: what they share, and how they end."""

import ast
import contextlib
import copy
import gc
import os
import signal
import subprocess
import sys

import pytest
import torch
from closeness import assert_close
from tiny_models import LIMIT, PROMPTS, as_tokens, complete, make_draws, make_model

from rollwise.engines.cpu.processes import SharedModel
from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import EngineError
from rollwise.signals import terminated_by_signals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_shared_model_computes_the_same_and_follows(dtype):
    model = make_model().to(dtype)
    shared, ids = SharedModel(model), torch.tensor([[5, 9, 3]])
    tensors = dict(shared.model.named_parameters())
    assert all(
        tensors[name].data_ptr() != tensor.data_ptr() for name, tensor in model.named_parameters()
    )
    with torch.inference_mode():
        assert_close(shared.model(ids).logits, model(ids).logits)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    with torch.inference_mode():
        assert (shared.model(ids).logits - model(ids).logits).abs().max() > 0.1
        shared.update()
        assert_close(shared.model(ids).logits, model(ids).logits)


def test_processes_draw_by_the_weights_that_were_loaded_last(model, tokenizer):
    model = copy.deepcopy(model)
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    draws = make_draws(10)
    before = as_tokens(complete(engine, draws))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    engine.load_weights({})
    after = as_tokens(complete(engine, draws))
    assert after != before
    assert after == as_tokens(
        complete(TransformersEngine(model, tokenizer, LIMIT, processes=1), draws)
    )


def test_a_cancelled_response_leaves_the_process_that_draws_it(model, tokenizer):
    """Three tokens are drawn of each: by the prompt's run, and by two steps that are under way."""
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    draws = make_draws(8, ["short"])
    engine.submit(draws, PROMPTS)
    engine._fill()
    (part,) = engine._batch.forked
    elsewhere = list(part.drawing)[:3]
    assert len(part.drawing) == 4
    part.begin_to_draw(2)
    assert engine.cancel(elsewhere) == 3 * 3
    assert engine.cancel(elsewhere) == 0
    assert engine.free_slots == 3
    done = {c.draw: c for completions in iter(engine.wait, []) for c in completions}
    kept = [draw for draw in draws if draw not in elsewhere]
    alone = complete(TransformersEngine(model, tokenizer, LIMIT, processes=1), kept)
    assert as_tokens(done) == as_tokens(alone)


def test_a_response_that_ends_when_it_is_cancelled_is_dropped(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    draws = make_draws(8, ["short"])
    engine.submit(draws, PROMPTS)
    engine._fill()
    (part,) = engine._batch.forked
    part.begin_to_draw(LIMIT)  # to the end of all
    dropped, *others = part.drawing
    engine.cancel([dropped])
    assert {response.draw for response in part.drawn()} == set(others)
    assert part.free_slots == 4
    engine.submit([dropped], PROMPTS)
    done = {c.draw for completions in iter(engine.wait, []) for c in completions}
    assert done == set(draws) - set(others)


def test_a_forked_process_ends_with_its_engine(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=3)
    processes = [part._process for part in engine._batch.forked]
    assert all(process.is_alive() for process in processes)
    del engine
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_a_process_that_is_killed_is_an_error_that_says_so(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    os.kill(engine._batch.forked[0]._process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"process of the engine ended .* exit code -9"):
        complete(engine, make_draws(8))


def test_a_signal_for_the_parent_that_comes_while_a_process_starts_is_ignored(
    model, tokenizer, monkeypatch
):
    """As when Ctrl-C in a terminal reaches them all."""

    def signalled():
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)

    with terminated_by_signals(), monkeypatch.context() as patch:
        patch.setattr("gc.freeze", signalled)  # the first that a forked process does
        engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    draws = make_draws(8)
    assert set(complete(engine, draws)) == set(draws)


def test_what_fails_in_a_forked_process_fails_here(model, tokenizer):
    engine = TransformersEngine(model, tokenizer, LIMIT, batch_size=8, processes=2)
    (part,) = engine._batch.forked
    part.fill({draw: [10**6] for draw in make_draws(1)})
    with pytest.raises(IndexError):
        part.drawn()


SCRIPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's parent ignores it
sys.path.insert(0, {tests!r})
from tiny_models import LIMIT, make_model
from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
from rollwise.engines.transformers import TransformersEngine
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({{"a": 1}}, "a")))
endings = {{}}
for ending in {endings}:
    if not (pid := os.fork()):
        break  # the rest is the fork's
    endings[pid] = ending
else:
    ended = [os.wait() for _ in endings]
    print(dict((endings[pid], os.waitstatus_to_exitcode(status)) for pid, status in ended))
    sys.exit()
engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=8, processes=3)
pids = [part._process.pid for part in engine._batch.forked]
os.write(1, f"{{pids}}\\n".encode())  # at once, lest the forks' lines mix
os.kill(os.getpid(), ending)
"""


def test_forked_processes_do_not_outlive_a_process_that_is_killed():
    """Three engines, whose processes are ended in three ways."""
    endings = [int(ending) for ending in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)]
    script = SCRIPT.format(tests=os.path.dirname(__file__), endings=endings)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        # The pipe is read to its end, which comes when the last process that holds it has ended.
        shown, _ = process.communicate(timeout=600)  # a guard, not a measure
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    *pids, ended = shown.splitlines()
    assert [len(ast.literal_eval(line)) for line in pids] == [2, 2, 2]
    assert ast.literal_eval(ended) == {ending: -ending for ending in endings}
