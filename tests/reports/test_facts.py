"""The head of a report: what was run, when and where, and a command that repeats it."""

import shlex
from pathlib import Path

import pytest
from made_runs import make_run, read

from rollwise.config import EvaluateConfig, TrainConfig, make_config, make_settings
from rollwise.config.base import nested
from rollwise.records import RunFolder
from rollwise.records.folder import describe_start
from rollwise.reports import write_report
from rollwise.reports.facts import command, run_facts

PLUGINS = str(Path(__file__).parents[2] / "examples/plugins")


def test_the_head_says_what_came_of_it_and_when_and_where_it_ran(tmp_path):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    started = describe_start("CPU (2 cores)")
    folder.write_config(folder.read_config(), started | {"commit": "abc123 + changes"})
    folder.write_config(folder.read_config())  # as resuming does
    text = " ".join(read(write_report(path).parent).text.split())
    assert "run held-out avg@8 0.250 [0.150, 0.350] → 0.625 [0.525, 0.725] · held-out" in text
    assert f"date {started['date']} host {started['host']} device CPU (2 cores)" in text
    assert "commit abc123 + changes" in text


def settings_of(words, kind):
    """Read a command's words as its settings."""
    given = {name[2:]: value for name, value in zip(words[2::2], words[3::2], strict=True)}
    if "benchmarks" in given:
        given["benchmarks"] = given["benchmarks"].split(",")
    return make_settings(kind, *map(nested, given.items())).model_dump(mode="json")


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 7, "exit": {"type": "balanced", "positives": 3}, "prompts": {"type": "cdas"}},
        {"exit": {"type": "fixed_count", "samples": 1}, "advantage": {"baseline": "belief"}},
        {"model": {"path": "some/model"}, "data": {"train": "a.jsonl"}},
        {"model": {"path": "some/model"}, "engine": {"max_new_tokens": 48}},  # default of another
        {"tokens": 1000, "allocation": {"type": "gvm"}},
        {"prompts": {"type": "least_seen:LeastSeen", "solved_as": 16}, "plugin_folder": PLUGINS},
    ],
)
def test_the_command_in_the_header_has_every_setting_that_is_not_the_default(settings):
    made = make_config(settings).model_dump(mode="json")
    words = shlex.split(command("train", TrainConfig, made))
    assert words[:2] == ["rollwise", "train"]
    assert settings_of(words, TrainConfig) == made


def test_the_command_of_an_evaluation_draws_as_long_responses_as_it_did():
    given = {"model": {"path": "runs/first"}, "engine": {"max_new_tokens": 48}}
    made = make_settings(EvaluateConfig, given).model_dump(mode="json")
    words = shlex.split(command("evaluate", EvaluateConfig, made))
    assert settings_of(words, EvaluateConfig) == made


def test_the_method_of_a_default_run_is_single_responses():
    facts = run_facts(make_config({}).model_dump(mode="json"), {}, {})
    assert facts["method"] == (
        "256 prompts by worth · single responses · objective linear · baseline belief"
    )
