"""`rollwise doctor --try`: the largest step of a run."""

import pytest

from rollwise.cli import main
from rollwise.commands import doctor_try
from rollwise.errors import ConfigError

TRIED = """
exit = {type = 'balanced'}
schedule = {size = 2, rounds = 2}
prompts = {batch_size = 4}
data = {problems = 32, max_terms = 4}
engine = {max_new_tokens = 12}
evaluation = {problems = 4, samples = 2}
"""
"""A run of the built-in model."""


def test_a_try_takes_the_largest_step_and_leaves_nothing(doctor, tmp_path, monkeypatch):
    """Four prompts in two rounds of two draws; each response has all of its 12 tokens."""
    monkeypatch.chdir(tmp_path)
    code, found = doctor(TRIED, "--try")
    assert code == 0, found
    one = found["one step"]
    assert "4 prompts, 16 responses of 12 tokens: " in one["detail"]
    assert 0.05 < float(one["detail"].split()[0]) < 50
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


@pytest.mark.parametrize(
    "settings",
    [
        "exit = {type = 'fixed_count', samples = 2}\ngroup = {size = 2}",
        "allocation = {type = 'gvm'}",
        "schedule = {type = 'streamed', max_samples = 5}",
        "exit = {type = 'fixed_count', samples = 1}\nadvantage = {baseline = 'belief'}",
    ],
)
def test_runs_of_any_kind_can_be_tried(doctor, settings):
    base = TRIED.replace("exit = {type = 'balanced'}\nschedule = {size = 2, rounds = 2}\n", "")
    code, found = doctor(f"{settings}\n{base}", "--try")
    assert code == 0 and " responses of 12 tokens" in found["one step"]["detail"], found


def test_memory_that_does_not_suffice_is_said_with_what_to_change(doctor, monkeypatch):
    def fail(run):
        raise MemoryError("no 12 GB")

    monkeypatch.setattr(doctor_try, "largest_step", fail)
    code, found = doctor(TRIED, "--try")
    one = found["one step"]
    assert (code, one["state"]) == (1, "broken")
    assert "there is not enough memory" in one["detail"] and "12 GB" in one["detail"]
    assert "model.gradient_checkpointing" in one["fix"]
    found = doctor(TRIED.replace("max_terms = 4", "train = 'no.jsonl'"), "--try")[1]
    assert "one step" not in found  # what it needs is not there


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("steps = 1\n[methods.a]", "the file is for `compare`"),
        ("[verl.trainer]\nnnodes = 2", "the file is for verl"),
        ("backend = {type = 'tinker'}", "this model runs on Tinker"),
    ],
)
def test_what_cannot_be_tried_is_said(doctor, capsys, settings, said):
    code, found = doctor(settings, "--try")
    assert code == 1 and said in found["settings.toml"]["detail"]
    assert main(["doctor", "--try"]) == ConfigError.exit_code
    assert "--try goes with a settings file" in capsys.readouterr().err
