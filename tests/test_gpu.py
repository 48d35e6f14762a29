"""What is different on a GPU: bfloat16, and an engine with a copy of the weights."""

import pytest
import torch

from rollwise.config import make_config
from rollwise.records import RunFolder
from rollwise.training.loop import train
from rollwise.training.run import resume_run, start_run
from rollwise.training.state import Run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


class Observer:
    """Lets a run go on to its end."""

    stop_requested = False

    def on_step(self, metrics):
        pass


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
    assert train(run, Observer())
    after = list(run.learner.model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert_engine_follows(run)

    rest = resume_run(config_of(steps=4), RunFolder(folder.path))
    for ours, theirs in zip(rest.learner.model.parameters(), after, strict=True):
        assert torch.equal(ours, theirs)
    assert_engine_follows(rest)
    assert train(rest, Observer())
    steps = folder.read_metrics()[1:]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    for step in steps:
        assert step["skipped_updates"] == 0
        # Engine and learner both compute in bfloat16, rounded apart: 2⁻⁸ of a few nats.
        assert 0 < step["sampler_gap"] < 0.1
