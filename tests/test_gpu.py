"""What is different on a GPU: bfloat16, kernels, and an engine with a copy of the weights."""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import as_tokens, complete
from transformers import Qwen3Config, Qwen3ForCausalLM

from rollwise.config import make_config
from rollwise.records import RunFolder
from rollwise.sampling import Draw
from rollwise.step import Example, Response
from rollwise.training import packing
from rollwise.training.forward import Forward
from rollwise.training.loop import train
from rollwise.training.run import Run, resume_run, start_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


OBSERVER = SimpleNamespace(stop_requested=False, on_step=lambda metrics: None)
"""Lets a run go on to its end."""


def config_of(steps):
    return make_config(
        {
            "steps": steps,
            "model": {"device": "cuda"},
            "prompts": {"batch_size": 8},
            "data": {"problems": 32, "max_terms": 4},
            "engine": {"max_new_tokens": 16},
            "learner": {"learning_rate": 1e-3, "warmup_updates": 0},
            "evaluation": {"problems": 8, "samples": 2},
        }
    )


def assert_engine_follows(run: Run) -> None:
    """The engine's weights are the learner's, rounded to bfloat16."""
    assert run.engine.model is not run.learner.model
    pairs = zip(run.engine.model.parameters(), run.learner.model.parameters(), strict=True)
    for own, learnt in pairs:
        assert (own.device.type, own.dtype) == ("cuda", torch.bfloat16)
        assert (learnt.device.type, learnt.dtype) == ("cuda", torch.float32)
        assert torch.equal(own, learnt.to(torch.bfloat16))
    # Positions stay exact.
    assert run.engine.model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_a_run_on_a_gpu_trains_and_resumes(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run = start_run(config_of(steps=2), folder)
    before = [p.detach().clone() for p in run.learner.model.parameters()]
    assert_engine_follows(run)
    assert train(run, OBSERVER)
    after = list(run.learner.model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert_engine_follows(run)

    rest = resume_run(config_of(steps=4), RunFolder(folder.path))
    for ours, theirs in zip(rest.learner.model.parameters(), after, strict=True):
        assert torch.equal(ours, theirs)
    assert_engine_follows(rest)
    assert train(rest, OBSERVER)
    steps = folder.read_metrics()[1:]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    for step in steps:
        assert step["skipped_updates"] == 0
        # Engine and learner both compute in bfloat16, rounded apart: 2⁻⁸ of a few nats.
        assert 0 < step["sampler_gap"] < 0.1


def test_the_built_in_engine_frees_its_cache(tmp_path):
    run = start_run(config_of(steps=1), RunFolder(tmp_path / "run"))
    draws = [Draw(key, i, i) for key in list(run.prompts)[:8] for i in range(8)]
    complete(run.engine, draws, run.prompts)
    taken = torch.cuda.memory_allocated()
    run.engine.sleep()
    assert torch.cuda.memory_allocated() < taken


def with_vllm(config, **settings):
    """The same run on vLLM, which takes 0.3 of the GPU."""
    engine = {"type": "vllm", "enforce_eager": True, "gpu_memory_utilization": 0.3}
    engine |= {"max_new_tokens": 16, "batch_size": 64} | settings
    return replace(config, engine=make_config({"engine": engine}).engine)


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
@pytest.mark.parametrize("rank", [0, 4])
def test_vllm_reads_the_learners_weights(tmp_path, rank):
    """Both find the same tokens equally likely after steps at a large learning rate."""
    pytest.importorskip("peft")
    config = with_vllm(config_of(steps=3))
    model = replace(config.model, lora_rank=rank)
    run = start_run(replace(config, model=model), RunFolder(tmp_path / "run"))
    with run.engine:
        assert train(run, OBSERVER)
    for step in run.folder.read_metrics()[1:]:
        assert 0 < step["sampler_gap"] < 0.1


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
@pytest.mark.parametrize("level", [1, 2])
def test_vllm_sleeps(tmp_path, level):
    """What vLLM has of the device is free while it sleeps, and its responses are the same after."""
    config = with_vllm(config_of(1), sleep_level=level)
    run = start_run(config, RunFolder(tmp_path / "run"))
    with run.engine as engine:
        draws = [Draw(key, i, i) for key in list(run.prompts)[:8] for i in range(8)]

        def tokens():
            return as_tokens(complete(engine, draws, run.prompts))

        before, (awake, total) = tokens(), torch.cuda.mem_get_info()
        engine.sleep()
        assert torch.cuda.mem_get_info()[0] - awake > 0.2 * total
        engine.load_weights(run.learner.weights())
        after = tokens()
        assert torch.cuda.mem_get_info()[0] < awake + 0.05 * total
        # Rounding depends on the batch: now and then a token differs.
        assert sum(before[draw] == after[draw] for draw in draws) > 0.8 * len(draws)


def test_the_learner_packs_rows_by_the_kernel(monkeypatch):
    """Log-probabilities are those of padded rows, up to bfloat16: 2⁻⁸ of a few nats."""
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=512, **shape, **heads)).cuda().eval()
    rng = np.random.default_rng(0)
    examples = [
        Example(
            rng.integers(2, 512, before).tolist(), Response(rng.integers(2, 512, n).tolist()), 1.0
        )
        for before, n in ((3, 50), (70, 1), (20, 300))
    ]
    runs = [Forward(model, 1.0, packed=packed) for packed in (True, False)]
    kernel, calls = packing.varlen_attn, []
    monkeypatch.setattr(packing, "varlen_attn", lambda *a, **n: calls.append(n) or kernel(*a, **n))
    packed, padded = (run(examples, False)[0] for run in runs)
    assert len(calls) == 2, "one for each layer"
    assert (packed - padded).abs().max() < 0.1
    found, wanted = (
        torch.cat([g.flatten() for g in torch.autograd.grad(logprobs.sum(), model.parameters())])
        for logprobs in (packed, padded)
    )
    assert (found - wanted).norm() < 0.05 * wanted.norm()
