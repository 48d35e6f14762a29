"""TRL's trainers; TRL itself is imported only where a test is run."""

import pytest


@pytest.fixture
def make_trainer(tmp_path):
    """Makes a trainer: `make_trainer(sampling, max_steps=1)`."""
    from tiny_runs import build

    def make(sampling=None, **changed):
        return build(changed.pop("folder", tmp_path), sampling, **changed)

    return make
