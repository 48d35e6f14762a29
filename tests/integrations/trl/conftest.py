"""Trainers of TRL, made and watched. TRL itself is imported only where a test is run."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def make_trainer(tmp_path):
    """Makes a trainer: `make_trainer(sampling, max_steps=1)`."""

    from tiny_runs import build

    def make(sampling=None, **changed):
        return build(changed.pop("folder", tmp_path), sampling, **changed)

    return make


@pytest.fixture
def watch(monkeypatch):
    """Keeps what a trainer hands to TRL and gets from it, step by step.

    `theirs` are TRL's own batches, before anything is put in their place; `ours` those trained on;
    `rows` those of all processes; `pools` what they were chosen from, by prompt.
    """

    def watched(trainer):
        from tiny_runs import keep
        from trl import GRPOTrainer

        score, patch = "_generate_and_score_completions", monkeypatch.setattr
        pools_of = lambda _, step: dict(step.rollouts.session.pools)  # noqa: E731
        return SimpleNamespace(
            theirs=keep(GRPOTrainer, score, lambda output, *_: dict(output), patch),
            ours=keep(trainer, score, patch=patch),
            rows=keep(trainer, "_sample", patch=patch),
            pools=keep(trainer, "_log_step", pools_of, patch),
        )

    return watched
