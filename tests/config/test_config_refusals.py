"""Settings: how each error reads."""

import re
import tomllib

import pytest

from rollwise.config import make_config
from rollwise.errors import ConfigError


def refusal(*layers) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(*layers)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("steps = 0", "`steps` must be at least 1; it is 0"),
        ("steps = 'many'", "`steps` must be an integer; it is 'many'"),
        ("steps = true", "`steps` must be a number; it is True"),
        ("learner.max_grad_norm = false", "`learner.max_grad_norm` must be a number; .* False"),
        ("steps = 1.5", "`steps` must be an integer; it is 1.5"),
        ("engine.temperature = inf", "`engine.temperature` must be below inf; it is inf"),
        (f"seed = {2**63}", f"`seed` must be below {2**63:,}; it is {2**63}"),
        ("advantage.objective = 'ppo'", "`.*` must be one of `reference`, .*; it is 'ppo'"),
        ("belief.type = 'faith'", "`belief.type` must be one of `own`, .*; it is 'faith'"),
        ("exit.type = ['a']", "`exit.type` must be one of `balanced`, .*; it is .'a'."),
        ("records.trackers = 'a'", "`records.trackers` must be a list; it is 'a'"),
        ("exit = {type = 'balanced', positives = 0}", "`exit.positives` must be .* 1; it is 0"),
        (
            "exit = {type = 'fixed_count', samples = 0}",
            "`exit.samples` must be at least 1; it is 0",
        ),
        (
            "method = 'reinforce_ada'\ngroup.size = 5",
            "with the method `reinforce_ada`: `group.size` must be even .*, got 5; .*",
        ),
        ("method = 'rloo'", "`method` should be one of `single`, .*; it is .rloo."),
        ("method = 'CDAS'", "`method` .*; it is .CDAS.; did you mean `cdas`."),
        (
            "method = 'grpo'\nexit.samples = 1",
            "with the method `grpo`: `exit` must draw at least 2 .*; or give another `method`",
        ),
        (
            "advantage.objective = 'grpo'",
            "with the method `single`: `exit` must draw at least 2 .* GRPO.*",
        ),
        (
            "method = 'grpo'\nadvantage.baseline = 'belief'",
            ".* is not a setting of `advantage.objective` = `grpo`, but of .*",
        ),
        (
            "group.strategy = 'balanced'",
            "with the method `single`: `group.strategy` must be `all` .* got `balanced`; .*",
        ),
        (
            "allocation = {type = 'estimated', maximum = 64}\nexit.samples = 8\nschedule.size = 8",
            ".* `allocation.maximum` must be at most the 8 draws of a prompt .*, got 64; .*",
        ),
        (
            "exit = {type = 'balanced', positives = 20, negatives = 20}",
            ".* `exit` does not fit `schedule`: .*positives=20.* never .* 32 draws .*size=8.*",
        ),
        ("grading.type = 'function'", "`grading`: .* needs function = `module:function`, or .*"),
        (
            "grading.type = 'operator:eq'",
            '`grading.type`: .* is a function: name it by `grading.function`.*"function"`',
        ),
        (
            "grading = {type = 'math', uncontained = true}",
            "`grading.uncontained` is not a setting of `grading.type` = `math`, but of `code`",
        ),
        (
            "exit = {type = 'fixed_count', positives = 3}",
            "`exit.positives` is not a .* `fixed_count`, but of `balanced`, `positive_focused`",
        ),
        (
            "learner.learningrate = 1",
            "there is no setting `learner.learningrate`; did you mean `learner.learning_rate`.",
        ),
        ("group = 4", "`group` is a section: give `--group.size 4`, or in TOML `group.size = 4`"),
        ("exit = 'balanced'", '.* `--exit.type balanced`, or in TOML `exit.type = "balanced"`'),
        ("exit = [3]", "`exit` is a section: give `--exit.type ...`, or in TOML .*"),
        ("exit.type = 'grpo'", "`exit.type` .*; it is 'grpo'; did you mean `method = .grpo.`."),
        ("exit.type = 'balance'", "`exit.type` .*; did you mean `balanced`."),
        ("prompts.type = 'balanced'", ".*; it is 'balanced', which is for `exit.type`"),
        (
            "prompts.decay = 0.3",
            ".* `prompts.decay` is for `belief.type` = `own`; .* `logit_kalman`; .*",
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
