"""Whole runs of the built-in model: where they end, what they write, how they stop and resume."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from rollwise.config import make_config
from rollwise.engines.kv_cache import SegmentedCache
from rollwise.errors import ConfigError
from rollwise.models.loading import copy_in_bfloat16
from rollwise.records import RunFolder
from rollwise.signals import Dropped
from rollwise.training.loop import train
from rollwise.training.run import resume_run, start_run


class Observer:
    """Watches a run, and asks it to stop after a step."""

    def __init__(self, stop_after=None):
        self.seen, self.stop_after, self.stop_requested = [], stop_after, False

    def on_step(self, metrics):
        self.seen.append(metrics["step"])
        self.stop_requested |= metrics["step"] == self.stop_after


SETTINGS = {
    "method": "reinforce_ada",
    "steps": 4,
    "prompts": {"batch_size": 4},
    "data": {"problems": 32, "max_terms": 4},
    "schedule": {"rounds": 2},
    "engine": {"max_new_tokens": 16},
    "evaluation": {"every": 2, "problems": 8, "samples": 2},
}


def config_of(**changed):
    return make_config(SETTINGS, changed)


def dropping(entry):
    """What is drawn at this entry into `Run.droppable` is dropped, when it is all there."""
    entries = itertools.count(1)

    @contextmanager
    def droppable():
        yield
        if next(entries) == entry:
            observer.stop_requested = True
            raise Dropped

    observer = Observer()
    return droppable, observer


@pytest.mark.parametrize(
    ("entry", "seen"),
    [(3, [0, 1]), (4, [0, 1, 2]), (7, [0, 1, 2, 3, 4])],
    ids=["step 2", "evaluation of step 2", "evaluation of step 4"],
)
def test_what_is_dropped_is_done_on_resuming(tmp_path, whole, entry, seen, assert_same_run):
    """As SIGTERM drops it; the end is that of a run that was not interrupted."""
    folder = RunFolder(tmp_path / "run")
    run = start_run(config_of(), folder)
    run.droppable, observer = dropping(entry)
    assert not train(run, observer)
    assert observer.seen == seen
    assert [p.name for p in folder.checkpoints.iterdir()] == [f"step-{seen[-1]:06d}"]

    rest = RunFolder(folder.path)
    assert train(resume_run(config_of(), rest), Observer())
    assert_same_run(folder.path, whole)
    elapsed = [line["elapsed"] for line in rest.read_metrics()]
    assert elapsed == sorted(elapsed)


def test_where_nothing_is_done_nothing_is_saved(tmp_path):
    folder = RunFolder(tmp_path / "run")
    run = start_run(config_of(), folder)
    run.droppable, observer = dropping(entry=1)
    with pytest.raises(Dropped):
        train(run, observer)
    assert not folder.checkpoints.exists()


def test_a_run_cannot_end_before_what_it_has_done(tmp_path, state_of):
    folder = RunFolder(tmp_path / "run")
    train(start_run(config_of(), folder), Observer(stop_after=3))
    before = state_of(folder.path), folder.read_config()
    with pytest.raises(ConfigError, match=r"`steps` must be at least 3, .* has done 3; it is 2"):
        resume_run(config_of(steps=2), RunFolder(folder.path))
    assert (state_of(folder.path), folder.read_config()) == before


def test_a_run_ends_once_its_tokens_or_seconds_are_spent(tmp_path, whole, metrics_of):
    """It is as long as the run of as many steps, and so it is after an interruption."""
    lines = metrics_of(whole)
    tokens = sum(line["tokens"] for line in lines[1:3]) + 1
    config = config_of(steps=1000, tokens=tokens)
    folder = RunFolder(tmp_path / "run")
    assert not train(start_run(config, folder), Observer(stop_after=1))
    run = resume_run(config, RunFolder(folder.path))
    assert run.expected_steps > 1
    assert train(run, Observer())
    found = metrics_of(folder.path)
    assert [line["step"] for line in found] == [0, 1, 2, 3]
    assert "heldout" in found[-1]
    assert [line["tokens"] for line in found[1:]] == [line["tokens"] for line in lines[1:4]]
    assert resume_run(config, RunFolder(folder.path)).ended
    config = config_of(steps=1000, seconds=1e-9)
    assert train(start_run(config, RunFolder(tmp_path / "timed")), Observer())
    assert [line["step"] for line in metrics_of(tmp_path / "timed")] == [0, 1]


def test_evaluations_can_be_due_by_tokens(tmp_path, whole, metrics_of):
    """Where as many tokens as half a run has are passed, and at its end."""
    spent = np.cumsum([line["tokens"] for line in metrics_of(whole)[1:]])
    every = int(spent[-1]) // 2
    settings = SETTINGS["evaluation"] | {"every": 0, "every_tokens": every}
    train(start_run(config_of(evaluation=settings), RunFolder(tmp_path / "run")), Observer())
    evaluated = [line["step"] for line in metrics_of(tmp_path / "run") if "heldout" in line]
    assert evaluated == sorted({0, int(np.searchsorted(spent, every)) + 1, 4})


@pytest.mark.parametrize("end", [{"steps": 3}, {"tokens": 1}])
def test_a_run_that_ends_where_it_stopped_is_evaluated_there(tmp_path, metrics_of, end):
    """Its figures "after" would otherwise be those of an earlier step; every second has them."""
    folder, short = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "short")
    train(start_run(config_of(), folder), Observer(stop_after=3))
    assert train(resume_run(config_of(**end), RunFolder(folder.path)), Observer())
    train(start_run(config_of(steps=3), short), Observer())
    assert metrics_of(folder.path) == metrics_of(short.path)


def test_an_engine_with_a_copy_of_the_weights_follows_the_learner(tmp_path, monkeypatch):
    """In bfloat16, but for rotary frequencies; weights that are tied stay tied."""
    monkeypatch.setattr("rollwise.models.loading.for_sampling", copy_in_bfloat16)
    run = start_run(config_of(), RunFolder(tmp_path / "run"))
    before = [p.clone() for p in run.engine.model.parameters()]
    assert train(run, Observer())
    copied, model = run.engine.model, run.learner.model
    after = list(copied.parameters())
    for own, learnt in zip(after, model.parameters(), strict=True):
        assert torch.equal(own, learnt.to(torch.bfloat16))
        assert (own.dtype, own.requires_grad) == (torch.bfloat16, False)
    assert copied.lm_head.weight is copied.model.embed_tokens.weight
    assert torch.equal(copied.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    assert not all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    # Rounding sets the two apart by about 2⁻⁸ of a few nats.
    assert all(1e-5 < line["sampler_gap"] < 0.1 for line in run.folder.read_metrics()[1:])


def test_a_smaller_batch_is_recorded_and_resumed_with(tmp_path, monkeypatch):
    """Also how many tokens had been drawn in vain: none, by continuous batching."""
    folder, begin_step = RunFolder(tmp_path / "run"), SegmentedCache.begin_step

    def bounded(cache):
        if len(cache.order) > 4:
            raise torch.OutOfMemoryError("too much")
        return begin_step(cache)

    monkeypatch.setattr(SegmentedCache, "begin_step", bounded)
    run = start_run(config_of(), folder)
    most = run.engine.slots
    train(run, Observer(stop_after=1))
    first = folder.read_metrics()[1]
    assert (first["engine_batch_size"], first["lost_tokens"]) == (run.engine.slots, 0)
    assert run.engine.slots <= 4 < most
    assert resume_run(config_of(), RunFolder(folder.path)).engine.slots == run.engine.slots


def test_beliefs_begin_at_the_accuracy_before_training(tmp_path):
    folder = RunFolder(tmp_path / "run")
    train(start_run(config_of(steps=1, belief={"type": "logit_kalman"}), folder), Observer())
    before, first = folder.read_metrics()
    expected = [part[0] for part in first["pass_rate_by_expected"]]
    assert expected == pytest.approx([before["heldout"]["avg@2"]["value"]] * len(expected))
