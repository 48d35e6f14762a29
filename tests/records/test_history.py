"""What earlier runs found of the prompts of a run."""

import numpy as np
import pytest

from rollwise.errors import ConfigError
from rollwise.records import RunFolder
from rollwise.records.history import offsets_in_earlier_runs

KEYS = ["a", "b", "c", "d"]


@pytest.fixture
def record(tmp_path):
    """Write a run in which prompts were drawn: step -> key -> correct of 4."""

    def run(name, steps):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        for step, visits in steps.items():
            for key, correct in visits.items():
                folder.keep_visit(step, {"key": key, "correct": correct, "drawn": 4}, "?")
        folder.flush_samples()
        return str(folder.path)

    return run


def test_a_prompt_that_was_solved_more_often_is_easier_and_one_not_drawn_is_unknown(record):
    run = record("run", {1: {"a": 4, "b": 0}, 2: {"a": 4, "c": 2, "other": 0}})
    a, b, c, d = offsets_in_earlier_runs([run], KEYS)
    assert a > c > b
    assert d is None


def test_of_two_runs_the_later_counts_and_steps_are_taken_in_order(record):
    """In the order of steps the policy learned; in the reverse order `a` would look easier."""
    first = record("first", {1: {"a": 0, "b": 4}})
    second = record("second", {2: {"a": 4}, 1: {"b": 0, "c": 0}})
    found = offsets_in_earlier_runs([first, second], KEYS)
    alone = offsets_in_earlier_runs([second], KEYS)
    assert found[:3] == alone[:3]
    assert offsets_in_earlier_runs([first], KEYS)[1] > 0


def test_runs_that_say_nothing_are_refused(record, tmp_path):
    with pytest.raises(ConfigError, match="nowhere has no `visits/` of a run"):
        offsets_in_earlier_runs([str(tmp_path / "nowhere")], KEYS)
    with pytest.raises(ConfigError, match=r"has drawn none of the 4 prompts.*of other data\?"):
        offsets_in_earlier_runs([record("other", {1: {"x": 1}})], KEYS)


def test_a_prompt_of_which_all_draws_were_lost_is_unknown(record, tmp_path):
    run = record("run", {1: {"a": 2, "b": 2}})
    folder = RunFolder(tmp_path / "run")
    folder.keep_visit(2, {"key": "c", "correct": 0, "drawn": 0}, "?")
    folder.flush_samples()
    assert offsets_in_earlier_runs([run], KEYS)[2] is None
    assert np.allclose(offsets_in_earlier_runs([run], KEYS)[:2], 0.0, atol=1e-6)
