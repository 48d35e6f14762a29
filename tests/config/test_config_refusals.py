"""Settings: how each error reads."""

import pytest

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.errors import ConfigError


def refusal(*layers) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(*layers)
    return str(caught.value)


BAD_VALUES = {
    "below the least": ({"steps": 0}, ["`steps`", "greater than or equal to 1", "it is 0"]),
    "not a number": ({"steps": "many"}, ["`steps`", "valid integer", "it is 'many'"]),
    "a truth value": ({"steps": True}, ["`steps`", "should be a number", "it is True"]),
    "a truth value in a section": (
        {"learner": {"max_grad_norm": False}},
        ["`learner.max_grad_norm`", "should be a number", "it is False"],
    ),
    "not whole": ({"steps": 1.5}, ["`steps`", "valid integer", "it is 1.5"]),
    "infinite": (
        {"engine": {"temperature": float("inf")}},
        ["`engine.temperature`", "finite", "it is inf"],
    ),
    "more than torch takes as a seed": ({"seed": 10**22}, ["`seed`", "less than", f"is {10**22}"]),
    "not a choice": (
        {"advantage": {"objective": "ppo"}},
        ["`advantage.objective`", "`reference`, `grpo`, `linear`", "it is 'ppo'"],
    ),
    "groups by outcome against a belief": (
        {"advantage": {"baseline": "belief"}, "group": {"strategy": "balanced"}},
        ["`group.strategy` must be `all`", "`advantage.baseline`", "got `balanced`"],
    ),
    "not a belief": (
        {"belief": {"type": "faith"}},
        ["`belief.type`", "`own`, `constant`", "it is 'faith'"],
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
    "a function as a type": (
        {"grading": {"type": "operator:eq"}},
        [
            "`grading.type`",
            'give it by `grading.type = "function"`',
            '`grading.function = "operator:eq"`',
        ],
    ),
    "kinds in a list": ({"exit": {"type": ["a"]}}, ["`exit.type`", "one of", "it is ['a']"]),
    "containment of what is not code": (
        {"grading": {"type": "math", "uncontained": True}},
        ["`grading.uncontained` is not a setting of type `math`"],
    ),
    "out of reach": (
        {"exit": {"positives": 20, "negatives": 20}},
        ["`exit` does not fit `schedule`", "positives=20", "never", "32 draws", "size=8"],
    ),
}


@pytest.mark.parametrize(("given", "parts"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_a_bad_value_is_named_with_what_it_must_be_and_what_it_is(given, parts):
    message = refusal(given)
    assert [part for part in parts if part not in message] == []
    assert "\n" not in message


UNKNOWN_KEYS = {
    "of a section": (
        {"learner": {"learningrate": 1}},
        "there is no setting `learner.learningrate`; did you mean `learner.learning_rate`?",
    ),
    "like nothing": ({"zzz": 3}, "there is no setting `zzz`"),
    "of another rule": (
        {"exit": {"type": "fixed_count", "positives": 3}},
        "`exit.positives` is not a setting of type `fixed_count`, but of `balanced`, "
        "`positive_focused`",
    ),
}


@pytest.mark.parametrize(("given", "message"), UNKNOWN_KEYS.values(), ids=UNKNOWN_KEYS.keys())
def test_an_unknown_key_is_an_error_that_names_the_nearest(given, message):
    assert refusal(given) == message


def test_all_that_is_wrong_is_said_at_once_and_not_what_hangs_on_it():
    lines = refusal({"steps": 0, "colour": "red"}, {"seed": -1}).splitlines()
    assert {line.split("`")[1] for line in lines} == {"steps", "seed", "colour"}
    message = refusal({"exit": {"type": "fixed_count", "samples": 0}})
    assert message == "`exit`: samples must be at least 1, got 0"


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
