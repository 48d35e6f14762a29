"""Settings: where they come from, which wins, what depends on what, and how each error reads."""

import json
import re
import tomllib

import pytest
from safetensors.torch import load_file

from rollwise.beliefs import DecayedBeta, LogitKalman
from rollwise.cli import main
from rollwise.config import (
    CompareConfig,
    EvaluateConfig,
    LearnerSettings,
    PlanConfig,
    PrepareConfig,
    TrainConfig,
    make_config,
    make_settings,
    read_toml,
    sections_of,
    setting_names,
)
from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError
from rollwise.models.saved import list_checkpoints
from rollwise.sampling import OBJECTIVES, Balanced, FixedCount, PositiveFocused, Rounds
from rollwise.sampling.objectives import Linear

OWN_MODEL = {"model": {"path": "./mine"}}


@pytest.fixture
def settle(monkeypatch, tmp_path):
    """What `rollwise train ARGUMENTS`, with `toml` in the file it is given, would train with."""
    seen = []

    def instead_of_training(layers, folder, resume, console):
        seen.append(make_config(*layers))
        return True

    monkeypatch.setattr("rollwise.commands.train.train", instead_of_training)

    def settle(*arguments: str, toml: str | None = None) -> TrainConfig:
        if toml is not None:
            path = tmp_path / "settings.toml"
            path.write_text(toml, encoding="utf-8")
            arguments = (str(path), *arguments)
        assert main(["train", *arguments]) == 0
        return seen.pop()

    return settle


def refusal(*layers) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(*layers)
    return str(caught.value)


# Where settings come from


def test_with_nothing_given_the_built_in_model_learns_the_built_in_task(settle):
    config = settle()
    assert config == make_config()
    assert (config.model.path, config.data.train) == ("running-sums", "running-sums")
    assert config.grading.type == "exact"
    assert config.learner.learning_rate > 10 * LearnerSettings().learning_rate
    assert config.engine.max_new_tokens < 100  # an answer takes 40 characters at most


def test_with_no_method_named_single_responses_teach():
    """As `examples/belief.toml` has it; vLLM's probabilities are not those of the learner."""
    config = make_config({"prompts": {"batch_size": 32}, "step": {"shift_beliefs": True}})
    assert (config.prompts.type, config.prompts.batch_size) == ("worth", 32)
    assert config.exit.make() == FixedCount(1)
    assert config.advantage.make() == Linear(baseline="belief")
    learner = config.learner
    assert (learner.average, learner.mini_batches, learner.warmup_updates) == ("responses", 8, 40)
    assert (learner.old_logprobs, config.step.response_cap) == ("engine", 1.0)
    assert make_config({"engine": {"type": "vllm"}}).learner.old_logprobs == "learner"
    assert make_config({"step": {"response_cap": 0.0}}).step.response_cap == 0
    tinker = {"backend": {"type": "tinker"}, "model": {"path": "Qwen/Qwen3-8B"}}
    assert step_recipe(make_config(tinker)) == step_recipe(config)


@pytest.mark.parametrize(
    "given",
    [
        {"exit": {"type": "balanced"}},
        {"prompts": {"type": "uniform"}},
        {"schedule": {"type": "rounds"}},
        {"group": {"size": 4}},
        {"advantage": {"objective": "reference"}},
        {"belief": {"type": "own"}},
        {"grading": {"type": "function", "function": "graders:half_credit"}},
        {"data": {"train": "tool-sums"}, "episode": {"type": "calculator"}},
    ],
)
def test_anything_of_a_method_begins_from_reinforce_ada(given):
    config = make_config(given)
    assert config.exit.make() == Balanced(positives=2, negatives=2)
    assert config.schedule.make() == Rounds(size=8, rounds=4)
    assert (config.group.size, config.group.zero_variance) == (4, "drop")
    assert (config.prompts.type, config.prompts.batch_size) == ("uniform", 64)
    assert (config.learner.mini_batches, config.step.response_cap) == (1, 0.0)


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(settle):
    config = settle("--steps", "7", "--engine.batch_size", "9", toml="steps = 5\nseed = 6\n")
    assert (config.steps, config.seed, config.engine.batch_size) == (7, 6, 9)


def test_the_command_line_sets_a_key_and_leaves_the_rest_of_its_section(settle):
    config = settle("--exit.negatives", "4", toml="[exit]\npositives = 3\n")
    assert config.exit.make() == Balanced(positives=3, negatives=4)


@pytest.mark.parametrize(
    ("arguments", "trackers"),
    [
        (["a,b"], ["a", "b"]),
        (["a", "--records.trackers", "b"], ["a", "b"]),
        (["[]"], []),
    ],
)
def test_a_list_on_the_command_line(settle, arguments, trackers):
    assert settle("--records.trackers", *arguments).records.trackers == trackers


def test_text_on_the_command_line_is_taken_as_it_is(settle):
    for text in ('say "a, b" and [c]', "{x", "123", "none at all"):
        assert settle("--data.instruction", text).data.instruction == text


def test_none_on_the_command_line_unsets_what_the_file_sets(settle):
    config = settle("--grading.workers", "none", toml="[grading]\nworkers = 3\n")
    assert config.grading.workers is None


def test_the_environment_is_not_a_source(settle, monkeypatch, tmp_path):
    for name in ("STEPS", "SEED", "steps", "seed"):
        monkeypatch.setenv(name, "3")
    monkeypatch.setenv("model", '{"path": "elsewhere"}')
    monkeypatch.setenv("MODEL__PATH", "elsewhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("steps=3\nSTEPS=3\n")
    config = settle()
    assert config == make_config()
    assert (config.steps, config.seed) == (TrainConfig.model_fields["steps"].default, 0)
    assert config.model.path == "running-sums"


# Defaults that depend on other settings


def test_single_responses_learn_at_a_lower_rate_than_groups(settle):
    """On a set of mostly hard and easy sums some runs stalled at the rate that suits groups."""
    single, groups = settle().learner, settle("--exit.type", "fixed_count").learner
    assert (single.learning_rate, groups.learning_rate) == (1.4e-4, 2e-4)


def test_a_model_of_ones_own_gets_the_usual_learning_rate_and_lengths(settle):
    config = settle("--model.path", "./mine")
    assert config.learner.learning_rate == 1e-6
    assert (config.engine.max_new_tokens, config.engine.batch_size) == (1024, 256)
    assert config.grading.type == "exact"  # the task is still the built-in one


def test_data_of_ones_own_are_graded_as_mathematics(settle):
    assert settle("--data.train", "own.parquet").grading.type == "math"
    assert settle("--data.train", "own.parquet", "--grading.type", "exact").grading.type == "exact"


def test_fixed_count_is_grpo_with_all_that_belongs_to_it(settle):
    config = settle("--exit.type", "fixed_count", "--exit.samples", "8")
    assert config.exit.make() == FixedCount(samples=8)
    assert config.schedule.make() == Rounds(size=8, rounds=1)
    group, advantage = config.group, config.advantage
    assert (group.size, group.strategy, group.zero_variance) == (8, "all", "keep")
    assert (advantage.objective, advantage.scale_by_std) == ("grpo", True)


def test_fixed_count_draws_as_many_as_a_group_of_the_default_rule_has(settle):
    config = settle("--exit.type", "fixed_count")
    assert config.exit.make() == FixedCount(samples=4)
    assert (config.schedule.make(), config.group.size) == (Rounds(size=4, rounds=1), 4)


def test_values_that_are_given_win_over_those_that_belong_to_the_rule(settle):
    config = settle(
        "--exit.type",
        "fixed_count",
        toml="[schedule]\nsize = 2\nrounds = 3\n[group]\nzero_variance = 'drop'\n"
        "[advantage]\nscale_by_std = false\n",
    )
    assert config.schedule.make() == Rounds(size=2, rounds=3)
    assert (config.group.zero_variance, config.group.strategy) == ("drop", "all")
    assert (config.advantage.objective, config.advantage.scale_by_std) == ("grpo", False)


@pytest.mark.parametrize(
    "toml", ["[exit]\ntype = 'balanced'\npositives = 3\n", "[exit]\npositives = 3\n"]
)
def test_another_exit_rule_on_the_command_line_replaces_the_whole_section(settle, toml):
    config = settle("--exit.type", "fixed_count", toml=toml)
    assert config.exit.make() == FixedCount(samples=4)
    assert config.advantage.objective == "grpo"


def test_the_same_exit_rule_on_the_command_line_replaces_nothing(settle):
    toml = "[exit]\ntype = 'positive_focused'\npositives = 3\n"
    assert settle("--exit.type", "positive_focused", toml=toml).exit.make() == PositiveFocused(3)


BY_BELIEF = {
    "prompts": {"type": "worth", "batch_size": 8},
    "belief": {"type": "logit_kalman", "noise": 0.05},
    "exit": {"type": "fixed_count", "samples": 1},
    "advantage": {"baseline": "belief"},
}


def test_the_sampler_chooses_by_the_belief_that_is_named():
    sampler = make_sampler(make_config(BY_BELIEF), list("abcdefgh"), {})
    assert isinstance(sampler.belief, LogitKalman)
    assert (sampler.belief.total, sampler.belief.noise) == (8, 0.05)
    uniform = make_config({"prompts": {"type": "uniform", "batch_size": 8}})
    own = make_sampler(uniform, list("abcdefgh"), {})
    assert isinstance(own.belief, DecayedBeta)


COLUMNS = {"level": [1] * 4 + [2] * 4, "source": [None] * 8, "mine": list(range(8))}


def features_of(settings, columns=COLUMNS):
    sampler = make_sampler(make_config(settings), list("abcdefgh"), columns)
    return sampler.belief.features and sampler.belief.features.names


def test_a_belief_takes_the_columns_that_the_data_has_unless_told_which():
    named = {"type": "logit_kalman"}
    assert features_of(BY_BELIEF | {"belief": named}) == ("level", "mine")
    assert features_of(BY_BELIEF | {"belief": named | {"features": ["mine"]}}) == ("mine",)
    assert features_of(BY_BELIEF | {"belief": named | {"features": []}}) is None
    assert features_of(BY_BELIEF | {"belief": named}, {"source": [None] * 8}) is None
    assert features_of({"prompts": {"type": "worth", "batch_size": 8}}) == ("level", "mine")


@pytest.mark.parametrize(
    ("belief", "message"),
    [
        ({"features": ["embedding"]}, "names embedding; the data has level, source, mine"),
        ({"features": ["source"]}, "the column 'source' is empty"),
    ],
)
def test_features_that_the_data_lacks_are_refused_by_name(belief, message):
    with pytest.raises(ConfigError, match=message):
        features_of(BY_BELIEF | {"belief": {"type": "logit_kalman", **belief}})


@pytest.mark.parametrize("belief", [{"features": ["level"]}, {"history": ["runs/earlier"]}])
def test_a_belief_that_takes_no_features_says_which_does(belief):
    message = "such as `belief.type` = `logit_kalman`"
    with pytest.raises(ConfigError, match=message):
        make_config({"belief": {"type": "constant", **belief}})
    config = make_config({"prompts": {"type": "uniform", "batch_size": 8}, "belief": belief})
    with pytest.raises(ConfigError, match=message):
        make_sampler(config, list("abcdefgh"), COLUMNS)


def test_with_a_baseline_by_belief_every_response_is_trained_on():
    config = make_config(BY_BELIEF)
    assert config.advantage.make() == OBJECTIVES["linear"](baseline="belief")
    assert (config.group.size, config.group.strategy, config.group.zero_variance) == (
        1,
        "all",
        "keep",
    )
    balanced = make_config({"advantage": {"baseline": "belief"}})
    assert balanced.group.strategy == "all"


@pytest.mark.parametrize("advantage", [{}, {"objective": "reference"}, {"objective": "log"}])
def test_single_responses_need_a_baseline_by_belief(advantage):
    given = {"exit": {"type": "fixed_count", "samples": 1}, "advantage": advantage}
    with pytest.raises(
        ConfigError, match=r"`exit` must draw .* set `advantage\.baseline` to `belief`"
    ):
        make_config(given)


@pytest.mark.parametrize(
    "others",
    [
        {"advantage": {"objective": "reward"}},
        {"advantage": {"objective": "log", "baseline": "belief"}},
        {"schedule": {"size": 4}},
        {"allocation": {"type": "estimated"}, "schedule": {"size": 32}},
    ],
)
def test_other_runs_of_fixed_counts_of_one_are_accepted(others):
    assert make_config({"exit": {"type": "fixed_count", "samples": 1}} | others).exit.samples == 1


def test_a_run_of_single_responses_by_belief_resumes_to_the_same_weights(tmp_path):
    options = ["--prompts.type", "worth", "--belief.type", "logit_kalman", "--exit.samples", "1"]
    options += ["--exit.type", "fixed_count", "--advantage.baseline", "belief", "--data.problems"]
    options += ["16", "--prompts.batch_size", "8", "--evaluation.problems", "2", "--seed", "3"]
    options += ["--evaluation.samples", "1", "--data.max_terms", "3", "--checkpoint.every", "1"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *options, "--steps", "3", "--output", str(whole)]) == 0
    assert main(["train", *options, "--steps", "1", "--output", str(parts)]) == 0
    assert main(["train", "--resume", "--steps", "3", "--output", str(parts)]) == 0
    last = [list_checkpoints(folder / "checkpoints")[-1] for folder in (whole, parts)]
    found = [load_file(checkpoint / "model/model.safetensors") for checkpoint in last]
    assert all((found[0][name] == found[1][name]).all() for name in found[0])
    first = load_file(list_checkpoints(whole / "checkpoints")[0] / "model/model.safetensors")
    assert any((first[name] != found[0][name]).any() for name in first)


def test_settings_of_an_objective_stay_where_the_command_line_names_another(settle):
    toml = "[advantage]\nobjective = 'linear'\nestimates = 'unbiased'\n"
    assert settle("--advantage.objective", "log", toml=toml).advantage.estimates == "unbiased"
    assert settle("--advantage.objective", "grpo", toml=toml).advantage.own() == {
        "scale_by_std": False
    }


# What is refused

BAD_VALUES = {
    "below the least": ({"steps": 0}, ["`steps`", "greater than or equal to 1", "it is 0"]),
    "negative": ({"seed": -1}, ["`seed`", "greater than or equal to 0", "it is -1"]),
    "not a number": ({"steps": "many"}, ["`steps`", "valid integer", "it is 'many'"]),
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
        ["`group`", "size must be even", "`balanced`", "got 5"],
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
        "`exit.positives` is not a setting of type `fixed_count`",
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


@pytest.mark.parametrize(
    ("others", "grading"),
    [
        ({}, ("environment", 60.0)),
        ({"data": {"train": "chosen.parquet"}}, ("environment", 60.0)),
        ({"data": {"train": "running-sums"}}, ("exact", 2.0)),
        ({"grading": {"type": "math"}}, ("math", 2.0)),
        ({"grading": {"timeout": 5.0}}, ("environment", 5.0)),
    ],
)
def test_a_named_environment_is_task_and_grader_unless_others_are_given(others, grading):
    config = make_config({"data": {"environment": "sums"}}, others)
    assert (config.grading.type, config.grading.timeout) == grading
    assert config.data.train == others.get("data", {}).get("train", "environment")


@pytest.mark.parametrize("command", [EvaluateConfig, PrepareConfig])
def test_the_model_of_a_run_is_asked_with_the_limit_of_the_run(tmp_path, command):
    run = tmp_path / "run"
    checkpoint = run / "checkpoints/step-000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text('{"model_type": "qwen2"}')
    (run / "config.json").write_text('{"config": {"engine": {"max_new_tokens": 3072}}}')
    for model in (run, checkpoint):
        named = {"model": {"path": str(model)}}
        assert make_settings(command, named).engine.max_new_tokens == 3072
        own = named | {"engine": {"max_new_tokens": 64}}
        assert make_settings(command, own).engine.max_new_tokens == 64
    (run / "config.json").write_text('{"config": []}')
    assert make_settings(command, named).engine.max_new_tokens == 1024


def test_a_named_environment_is_what_the_other_commands_read():
    named = {"data": {"environment": "sums", "environment_arguments": {"count": 5}}}
    evaluated, prepared = (make_settings(kind, named) for kind in (EvaluateConfig, PrepareConfig))
    assert evaluated.benchmarks == prepared.data.sources == ["environment"]
    assert evaluated.grading.type == prepared.grading.type == "environment"
    others = {"benchmarks": ["aime24"], "model": {"path": "mine"}}
    assert make_settings(EvaluateConfig, named, others).benchmarks == ["aime24"]


@pytest.mark.parametrize("benchmark", ["math500", "aime24", "owner/name"])
def test_the_built_in_model_is_refused_benchmarks_that_it_cannot_read(benchmark):
    with pytest.raises(ConfigError) as caught:
        make_settings(EvaluateConfig, {"benchmarks": ["running-sums", benchmark]})
    message = str(caught.value)
    assert f"cannot be evaluated on {benchmark}" in message and "`--model.path`" in message
    with_model = {"benchmarks": [benchmark], "model": {"path": "mine"}}
    assert make_settings(EvaluateConfig, with_model).benchmarks == [benchmark]


def test_arguments_of_an_environment_on_the_command_line(settle):
    config = settle("--data.environment", "sums", "--data.environment_arguments", '{"count": 5}')
    assert config.data.environment_arguments == {"count": 5}


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


# Files


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "No such file"),
        ("folder", "directory"),
        (b"steps 3", "is not TOML"),
        (b"name = '\xff'", "is not TOML"),
    ],
    ids=["missing", "a folder", "not TOML", "not UTF-8"],
)
def test_a_file_that_cannot_be_read_is_named(content, part, tmp_path):
    path = tmp_path / "settings.toml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert str(path) in str(caught.value)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        OWN_MODEL,
        {"exit": {"type": "fixed_count", "samples": 8}},
        {"exit": {"type": "positive_focused"}, "schedule": {"rounds": 2}},
        {"grading": {"type": "function", "function": "mine:grade", "workers": 2}, "seed": 3},
        {"learner": {"max_grad_norm": float("inf")}, "records": {"trackers": ["tensorboard"]}},
    ],
    ids=["nothing", "own model", "fixed count", "positive focused", "function", "no clipping"],
)
def test_recorded_settings_make_the_same_settings_again(given):
    config = make_config(given)
    recorded = json.loads(json.dumps(config.model_dump(mode="json")))
    assert make_config(recorded) == config


def test_code_has_more_time_than_mathematics():
    assert make_config({"grading": {"type": "code"}}).grading.timeout == 10.0
    assert make_config({"grading": {"type": "code", "timeout": 3.0}}).grading.timeout == 3.0


def test_every_setting_is_described():
    """In `--help` as in the TOML: a setting without a line of its own could not be looked up."""
    assert {name.split(".")[0] for name in setting_names()} == set(TrainConfig.model_fields)
    for field in TrainConfig.model_fields.values():
        for section in sections_of(field.annotation):
            own = section.model_fields.items()
            assert [key for key, setting in own if not setting.description] == []


@pytest.mark.parametrize("command", ["train", "evaluate", "prepare", "compare", "plan", "verl"])
def test_help_has_an_example_and_names_every_setting(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"Example: rollwise {command} " in shown and "docs/settings.md" in shown
    kinds = {"evaluate": EvaluateConfig, "prepare": PrepareConfig}
    kinds |= {"compare": CompareConfig, "plan": PlanConfig}
    for name in setting_names(kinds.get(command, TrainConfig)):
        section, _, key = name.rpartition(".")
        assert key in shown and (f"--{section}" in shown), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "there is no command `trian`; did you mean `train`?"),
        (["train", "--steps"], "`--steps` needs a value"),
        (["train", "--steps", "--output", "x"], "`--steps` needs a value"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_a_hint(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--stpes", "3"], "there is no setting `stpes`; did you mean `steps`?"),
        (["train", "--learner.lr=3"], "there is no setting `learner.lr`"),
        (
            ["compare", "--steps", "1", "--methods.a.exit.tpye", "balanced"],
            "method `a`: there is no setting `exit.tpye`; did you mean `exit.type`?",
        ),
    ],
)
def test_a_setting_that_there_is_not_ends_the_command(arguments, message, capsys, tmp_path):
    assert main([*arguments, "--output", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--exit.type=fixed_count", "--exit.samples=3"],
        ["--exit", '{"type": "fixed_count", "samples": 3}'],
        ["--exit", '{type = "fixed_count"}', "--exit.samples", "3"],
    ],
)
def test_a_section_is_given_by_keys_or_as_a_table(settle, arguments):
    assert settle(*arguments, toml="[exit]\npositives = 3\n").exit.make() == FixedCount(3)


@pytest.mark.parametrize("given", [{"steps": True}, {"learner": {"max_grad_norm": False}}])
def test_a_truth_value_is_no_number(given):
    assert "should be a number; it is " in refusal(given)


def test_a_method_needs_a_name():
    with pytest.raises(ConfigError, match="a name is empty"):
        make_settings(CompareConfig, {"methods": {"": {}}, "steps": 3})


def without_other_programs(given):
    """Take out the table of verl's own settings, which verl's tests check."""
    return {section: value for section, value in given.items() if section != "verl"}


def test_every_example_in_the_repository_is_valid(root):
    shipped = [path for part in ("examples", "docs") for path in root.glob(f"{part}/**/*.toml")]
    assert shipped
    for path in shipped:
        make_config(without_other_programs(read_toml(path)))


def test_every_toml_block_in_the_documents_is_valid(root):
    others = {root / f"docs/{name}.md" for name in ("compare", "plan", "tutorial")}
    pages = {root / "README.md", *root.glob("docs/**/*.md")} - others
    blocks = [b for p in pages for b in re.findall(r"```toml\n(.*?)```", p.read_text(), re.DOTALL)]
    assert blocks
    for block in blocks:
        given = tomllib.loads(block) | {"plugin_folder": str(root / "examples/plugins")}
        if "methods" in given:
            make_settings(CompareConfig, given).check_methods()
        else:
            make_config(without_other_programs(given))
