"""Trainers of TRL, made and watched. TRL itself is imported only where a test is run."""

import pytest


@pytest.fixture
def make_trainer(tmp_path):
    """Makes a trainer: `make_trainer(sampling, max_steps=1)`."""

    from tiny_runs import build

    def make(sampling=None, **changed):
        return build(changed.pop("folder", tmp_path), sampling, **changed)

    return make


class Watched:
    """What a trainer hands to TRL and gets from it, step by step.

    Attributes:
        theirs: TRL's own batches, before anything is put in their place.
        ours: The batches trained on.
        rows: The rows of all processes.
        pools: What they were chosen from, by prompt.
    """

    def __init__(self, trainer, monkeypatch):
        from tiny_runs import keep
        from trl import GRPOTrainer

        score, patch = "_generate_and_score_completions", monkeypatch.setattr
        self.theirs = keep(GRPOTrainer, score, lambda output, *_: dict(output), patch)
        self.ours = keep(trainer, score, patch=patch)
        self.rows = keep(trainer, "_sample", patch=patch)
        pools_of = lambda _, step: dict(step.rollouts.session.pools)  # noqa: E731
        self.pools = keep(trainer, "_log_step", pools_of, patch)


@pytest.fixture
def watch(monkeypatch):
    return lambda trainer: Watched(trainer, monkeypatch)
