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
        from trl import GRPOTrainer

        self.theirs, self.ours, self.rows, self.pools = [], [], [], []
        of_trl = GRPOTrainer._generate_and_score_completions
        own, rows_of = trainer._generate_and_score_completions, trainer._sample
        log_step = trainer._log_step

        def theirs(this, inputs):
            output = of_trl(this, inputs)
            self.theirs.append(dict(output))
            return output

        def ours(inputs):
            self.ours.append(own(inputs))
            return self.ours[-1]

        def rows():
            self.rows.append(rows_of())
            return self.rows[-1]

        def pools(step):
            self.pools.append(dict(step.rollouts.session.pools))
            log_step(step)

        monkeypatch.setattr(trainer, "_log_step", pools)
        monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", theirs)
        monkeypatch.setattr(trainer, "_generate_and_score_completions", ours)
        monkeypatch.setattr(trainer, "_sample", rows)


@pytest.fixture
def watch(monkeypatch):
    return lambda trainer: Watched(trainer, monkeypatch)
