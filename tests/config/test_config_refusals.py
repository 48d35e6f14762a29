"""Settings: how each error reads."""

import pytest

from rollwise.cli import main
from rollwise.config import (
    make_config,
)
from rollwise.errors import ConfigError


def refusal(*layers) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(*layers)
    return str(caught.value)


BAD_VALUES = {
    "below the least": ({"steps": 0}, ["`steps`", "greater than or equal to 1", "it is 0"]),
    "negative": ({"seed": -1}, ["`seed`", "greater than or equal to 0", "it is -1"]),
    "not a number": ({"steps": "many"}, ["`steps`", "valid integer", "it is 'many'"]),
    "a truth value": ({"steps": True}, ["`steps`", "should be a number", "it is True"]),
    "a truth value in a section": (
        {"learner": {"max_grad_norm": False}},
        ["`learner.max_grad_norm`", "should be a number", "it is False"],
    ),
    "not whole": ({"steps": 1.5}, ["`steps`", "valid integer", "it is 1.5"]),
    "not above 0": (
        {"engine": {"temperature": 0}},
        ["`engine.temperature`", "greater than 0", "it is 0"],
    ),
    "infinite": (
        {"engine": {"temperature": float("inf")}},
        ["`engine.temperature`", "finite", "it is inf"],
    ),
    "more than torch takes as a seed": ({"seed": 10**22}, ["`seed`", "less than", f"is {10**22}"]),
    "more threads than there can be": (
        {"model": {"cpu_threads": 100_000}},
        ["`model.cpu_threads`", "less than or equal to 4096", "it is 100000"],
    ),
    "no number at all": (
        {"grading": {"positive_threshold": float("nan")}},
        ["`grading.positive_threshold`", "finite", "it is nan"],
    ),
    "not a choice": (
        {"advantage": {"objective": "ppo"}},
        ["`advantage.objective`", "`reference`, `grpo`, `linear`", "it is 'ppo'"],
    ),
    "division by a deviation of what has none": (
        {"advantage": {"objective": "log", "scale_by_std": True}},
        ["`advantage.scale_by_std` is not a setting of type `log`"],
    ),
    "groups by outcome against a belief": (
        {"advantage": {"baseline": "belief"}, "group": {"strategy": "balanced"}},
        ["`group.strategy` must be `all`", "`advantage.baseline`", "got `balanced`"],
    ),
    "refilling against a belief": (
        {"advantage": {"baseline": "belief"}, "group": {"zero_variance": "refill"}},
        ["`group.zero_variance` must be `drop` or `keep`", "`advantage.baseline`", "`refill`"],
    ),
    "not a belief": (
        {"belief": {"type": "faith"}},
        ["`belief.type`", "`own`, `constant`", "it is 'faith'"],
    ),
    "a bad value of a belief": (
        {"belief": {"type": "logit_kalman", "noise": -1}},
        ["`belief`: noise must be finite and at least 0, got -1"],
    ),
    "a pilot and refilling": (
        {"allocation": {"type": "gvm"}, "group": {"zero_variance": "refill"}},
        ["`group.zero_variance`", "`drop` or `keep`", "got `refill`"],
    ),
    "fewer draws than prompts": (
        {"schedule": {"total_draws": 10}},
        ["`schedule.total_draws`", "64 prompts", "it is 10"],
    ),
    "an allocation beyond the schedule": (
        {
            "allocation": {"type": "estimated", "maximum": 64},
            "exit": {"samples": 8},
            "schedule": {"size": 8},
        },
        ["`allocation.maximum`", "at most the 8 draws", "got 64"],
    ),
    "not a list": (
        {"records": {"trackers": "tensorboard"}},
        ["`records.trackers`", "valid list", "it is 'tensorboard'"],
    ),
    "not a section": ({"model": "mine"}, ["`model`", "it is 'mine'"]),
    "not a rule": (
        {"exit": {"type": "never"}},
        ["`exit.type`", "`balanced`, `positive_focused`, `fixed_count`", "it is 'never'"],
    ),
    "not a schedule": (
        {"schedule": {"type": "streams"}},
        ["`schedule.type`", "`rounds`", "it is 'streams'"],
    ),
    "no positives": (
        {"exit": {"positives": 0}},
        ["`exit`", "positives must be at least 1", "got 0"],
    ),
    "halves of an odd group": (
        {"group": {"size": 5}},
        ["`group.size` must be even", "`balanced`", "got 5"],
    ),
    "function without its name": (
        {"grading": {"type": "function"}},
        ["`grading`", "type `function` needs function = `module:function`"],
    ),
    "name without its function": (
        {"grading": {"type": "math", "function": "mine:grade"}},
        ["`grading.function` is not a setting of type `math`"],
    ),
    "containment of what is not code": (
        {"grading": {"type": "math", "uncontained": True}},
        ["`grading.uncontained` is not a setting of type `math`"],
    ),
    "more at a time than any memory holds": (
        {"engine": {"batch_size": 10**11}},
        ["`engine.batch_size`", "less than or equal to 1048576", "it is 100000000000"],
    ),
    "more prompts than any memory holds": (
        {"prompts": {"batch_size": 10**11}},
        ["`prompts.batch_size`", "less than or equal to 1048576", "it is 100000000000"],
    ),
    "more rounds than tables hold": (
        {"schedule": {"rounds": 10**11}},
        ["`schedule`", "the most draws of a prompt, must be at most 4,096", "got 800,000,000,000"],
    ),
    "more draws than tables hold": (
        {"schedule": {"type": "streamed", "max_samples": 10**11}},
        ["`schedule`", "max_samples must be at most 4,096", "got 100,000,000,000"],
    ),
    "more responses of an evaluation than tables hold": (
        {"evaluation": {"samples": 5000}},
        ["`evaluation.samples`", "less than or equal to 4096", "it is 5000"],
    ),
    "out of reach": (
        {"exit": {"positives": 20, "negatives": 20}},
        ["`exit` does not fit `schedule`", "positives=20", "never", "32 draws", "size=8"],
    ),
    "more samples than draws": (
        {"exit": {"type": "fixed_count", "samples": 8}, "schedule": {"size": 4}},
        ["`exit` does not fit `schedule`", "samples=8", "4 draws"],
    ),
}


@pytest.mark.parametrize(("given", "parts"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_a_bad_value_is_named_with_what_it_must_be_and_what_it_is(given, parts):
    message = refusal(given)
    assert [part for part in parts if part not in message] == []
    assert "\n" not in message


UNKNOWN_KEYS = {
    "of all": ({"stpes": 3}, "there is no setting `stpes`; did you mean `steps`?"),
    "of a section": (
        {"learner": {"learningrate": 1}},
        "there is no setting `learner.learningrate`; did you mean `learner.learning_rate`?",
    ),
    "like nothing": ({"zzz": 3}, "there is no setting `zzz`"),
    "a whole section": ({"xyzzy": {"q": 1}}, "there is no setting `xyzzy`"),
    "of a rule": (
        {"exit": {"positive": 3}},
        "there is no setting `exit.positive`; did you mean `exit.positives`?",
    ),
    "of another rule": (
        {"exit": {"type": "fixed_count", "positives": 3}},
        "`exit.positives` is not a setting of type `fixed_count`, but of `balanced`, "
        "`positive_focused`",
    ),
}


@pytest.mark.parametrize(("given", "message"), UNKNOWN_KEYS.values(), ids=UNKNOWN_KEYS.keys())
def test_an_unknown_key_is_an_error_that_names_the_nearest(given, message):
    assert refusal(given) == message


def test_all_that_is_wrong_is_said_at_once():
    lines = refusal({"steps": 0, "colour": "red"}, {"seed": -1}).splitlines()
    assert len(lines) == 3
    assert all(any(key in line for line in lines) for key in ("steps", "colour", "seed"))


def test_a_bad_value_is_not_blamed_on_the_defaults_that_hang_on_it():
    message = refusal({"exit": {"type": "fixed_count", "samples": 0}})
    assert message == "`exit`: samples must be at least 1, got 0"


def test_a_bad_value_on_the_command_line_ends_with_code_2_and_one_line(capsys, tmp_path):
    assert main(["train", "--steps", "0", "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rollwise: `steps`")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "setting", "value"),
    [
        ("train", "data.environment_arguments", "{count: 4}"),
        ("evaluate", "benchmarks", "[problems.jsonl"),
    ],
)
def test_a_list_or_table_that_cannot_be_read_is_named(command, setting, value, capsys, tmp_path):
    assert main([command, f"--{setting}", value, "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rollwise: `{setting}`: on the command line a list is written as a,b")
    assert error.count("\n") == 1


def test_resuming_needs_a_run(capsys, tmp_path):
    assert main(["train", "--resume"]) == 2
    assert "--resume needs --output" in capsys.readouterr().err
    assert main(["train", "--resume", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path}: there is nothing to resume" in capsys.readouterr().err
