"""Settings: how each error reads."""

import re
import tomllib

import pytest

from rollwise.cli import main
from rollwise.config import make_config
from rollwise.errors import ConfigError


def refusal(*layers) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(*layers)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("steps = 0", "`steps`: should be greater than or equal to 1; it is 0"),
        ("steps = 'many'", "`steps`: should be a valid integer, .*; it is 'many'"),
        ("steps = true", "`steps`: should be a number; it is True"),
        ("learner.max_grad_norm = false", "`learner.max_grad_norm`: should be a number; .* False"),
        ("steps = 1.5", "`steps`: should be a valid integer, .*; it is 1.5"),
        ("engine.temperature = inf", "`engine.temperature`: should be a finite number; it is inf"),
        (f"seed = {2**63}", f"`seed`: should be less than {2**63}; it is {2**63}"),
        ("advantage.objective = 'ppo'", "`.*`: should be one of `reference`, .*; it is 'ppo'"),
        ("belief.type = 'faith'", "`belief.type`: should be one of `own`, .*; it is 'faith'"),
        ("exit.type = ['a']", "`exit.type`: should be one of `balanced`, .*; it is .'a'."),
        ("records.trackers = 'a'", "`records.trackers`: should be a valid list; it is 'a'"),
        ("exit.positives = 0", "`exit`: positives must be at least 1, got 0"),
        ("exit = {type = 'fixed_count', samples = 0}", "`exit`: samples must be at least 1, got 0"),
        ("group.size = 5", "`group.size` must be even for strategy `balanced` .*, got 5"),
        (
            "advantage.baseline = 'belief'\ngroup.strategy = 'balanced'",
            "`group.strategy` must be `all` .* .`advantage.baseline`.: .*; got `balanced`",
        ),
        (
            "allocation = {type = 'estimated', maximum = 64}\nexit.samples = 8\nschedule.size = 8",
            "`allocation.maximum` must be at most the 8 draws of a prompt .*, got 64",
        ),
        (
            "exit = {positives = 20, negatives = 20}",
            "`exit` does not fit `schedule`: .*positives=20.* never .* 32 draws .*size=8.*",
        ),
        ("grading.type = 'function'", "`grading`: .* needs function = `module:function`"),
        (
            "grading.type = 'operator:eq'",
            '`grading.type`: .* is a function: name it by `grading.function`.*"function"`',
        ),
        (
            "grading = {type = 'math', uncontained = true}",
            "`grading.uncontained` is not a setting of type `math`, but of `code`",
        ),
        (
            "exit = {type = 'fixed_count', positives = 3}",
            "`exit.positives` is not a .* `fixed_count`, but of `balanced`, `positive_focused`",
        ),
        (
            "learner.learningrate = 1",
            "there is no setting `learner.learningrate`; did you mean `learner.learning_rate`.",
        ),
        ("group = 4", "`group`: should be a .*; it is 4"),
        (
            "prompts.decay = 0.3",
            "`prompts.decay` is for `belief.type` = `own`; that is `logit_kalman`",
        ),
        ("zzz = 3", "there is no setting `zzz`"),
    ],
)
def test_what_is_wrong_is_named_with_what_it_must_be_and_what_it_is(given, message):
    found = refusal(tomllib.loads(given))
    assert re.fullmatch(message, found), found


def test_all_that_is_wrong_is_said_at_once():
    lines = refusal({"steps": 0, "colour": "red"}, {"seed": -1}).splitlines()
    assert {line.split("`")[1] for line in lines} == {"steps", "seed", "colour"}


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
