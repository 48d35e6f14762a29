"""Settings: what depends on what."""

from functools import reduce

import pytest

from rollwise.beliefs import DecayedBeta, LogitKalman
from rollwise.config import (
    EvaluateConfig,
    LearnerSettings,
    PrepareConfig,
    make_config,
    make_settings,
)
from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError
from rollwise.sampling import OBJECTIVES, Balanced, FixedCount, PositiveFocused, Rounds
from rollwise.sampling.objectives import Linear

OWN_MODEL = {"model": {"path": "./mine"}}


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


@pytest.mark.parametrize(
    ("given", "found"),
    [
        # On a set of mostly hard and easy sums some runs stalled at the rate that suits groups.
        ({}, {"learner.learning_rate": 1.4e-4}),
        ({"exit": {"type": "fixed_count"}}, {"learner.learning_rate": 2e-4}),
        (OWN_MODEL, {"learner.learning_rate": 1e-6, "engine.max_new_tokens": 1024}),
        (OWN_MODEL, {"engine.batch_size": 256, "grading.type": "exact"}),  # of the built-in task
        ({"data": {"train": "own.parquet"}}, {"grading.type": "math"}),
        (
            {"data": {"train": "own.parquet"}, "grading": {"type": "exact"}},
            {"grading.type": "exact"},
        ),
        ({"grading": {"type": "code"}}, {"grading.timeout": 10.0}),
        ({"grading": {"type": "code", "timeout": 3.0}}, {"grading.timeout": 3.0}),
    ],
)
def test_defaults_depend_on_model_task_and_method(given, found):
    config = make_config(given)
    assert {name: reduce(getattr, name.split("."), config) for name in found} == found


@pytest.mark.parametrize(("given", "samples"), [(["--exit.samples", "8"], 8), ([], 4)])
def test_fixed_count_is_grpo_with_all_that_belongs_to_it(settle, given, samples):
    """By default with as many as a group of the default rule has."""
    config = settle("--exit.type", "fixed_count", *given)
    assert config.exit.make() == FixedCount(samples=samples)
    assert config.schedule.make() == Rounds(size=samples, rounds=1)
    group, advantage = config.group, config.advantage
    assert (group.size, group.strategy, group.zero_variance) == (samples, "all", "keep")
    assert (advantage.objective, advantage.scale_by_std) == ("grpo", True)


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


def test_another_exit_rule_on_the_command_line_replaces_the_whole_section(settle):
    for toml in ("[exit]\ntype = 'balanced'\npositives = 3\n", "[exit]\npositives = 3\n"):
        config = settle("--exit.type", "fixed_count", toml=toml)
        assert config.exit.make() == FixedCount(samples=4)
        assert config.advantage.objective == "grpo"
    same = "[exit]\ntype = 'positive_focused'\npositives = 3\n"
    assert settle("--exit.type", "positive_focused", toml=same).exit.make() == PositiveFocused(3)


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
    return sampler.belief.features.columns


def test_a_belief_takes_the_columns_that_the_data_has_unless_told_which():
    named = {"type": "logit_kalman"}
    assert features_of(BY_BELIEF | {"belief": named}) == "level,mine"
    assert features_of(BY_BELIEF | {"belief": named | {"features": ["mine"]}}) == "mine"
    assert features_of(BY_BELIEF | {"belief": named | {"features": []}}) == ""
    assert features_of(BY_BELIEF | {"belief": named}, {"source": [None] * 8}) == ""
    assert features_of({"prompts": {"type": "worth", "batch_size": 8}}) == "level,mine"


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


def test_single_responses_need_a_baseline_by_belief():
    given = {"exit": {"type": "fixed_count", "samples": 1}}
    with pytest.raises(ConfigError, match=r"`exit` must draw .*`advantage\.baseline` = `belief`"):
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


def test_settings_of_an_objective_stay_where_the_command_line_names_another(settle):
    toml = "[advantage]\nobjective = 'linear'\nestimates = 'unbiased'\n"
    assert settle("--advantage.objective", "log", toml=toml).advantage.estimates == "unbiased"
    assert settle("--advantage.objective", "grpo", toml=toml).advantage.own() == {
        "scale_by_std": False
    }


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
