"""Settings: what depends on what."""

from functools import reduce

import pytest

from rollwise.beliefs import DecayedBeta, LogitKalman
from rollwise.config import EvaluateConfig, PrepareConfig, make_config, make_settings
from rollwise.config.step import make_sampler, step_recipe
from rollwise.errors import ConfigError
from rollwise.sampling import FixedCount, PositiveFocused

OWN_MODEL = {"model": {"path": "./mine"}}
OWN_DATA = {"data": {"train": "own.parquet"}}
SUMS = {"data": {"environment": "sums"}}
GRPO = {"exit": {"type": "fixed_count"}}
BALANCED = {"exit": {"type": "balanced"}}
FOR_GROUPS = {
    "exit.type": "balanced",
    "exit.positives": 2,
    "exit.negatives": 2,
    "schedule.type": "rounds",
    "schedule.size": 8,
    "schedule.rounds": 4,
    "group.size": 4,
    "group.zero_variance": "drop",
    "advantage.objective": "reference",
    "prompts.type": "uniform",
    "prompts.batch_size": 64,
    "learner.mini_batches": 1,
    "step.response_cap": 0.0,
}
"""Reinforce-Ada's, from which all begins that names a method."""

BY_BELIEF = {
    "prompts": {"type": "worth", "batch_size": 8},
    "belief": {"type": "logit_kalman", "noise": 0.05},
    "exit": {"type": "fixed_count", "samples": 1},
    "advantage": {"baseline": "belief"},
}

DEPENDENT = [
    # The built-in model learns the built-in task, whose answers take 40 characters at most. On a
    # set of mostly hard and easy sums some runs stalled at the rate that suits groups.
    ({}, {"model.path": "running-sums", "data.train": "running-sums", "grading.type": "exact"}),
    ({}, {"learner.learning_rate": 1.4e-4, "engine.max_new_tokens": 48, "model.cpu_threads": 1}),
    (GRPO, {"learner.learning_rate": 2e-4}),
    (OWN_MODEL, {"learner.learning_rate": 1e-6, "engine.max_new_tokens": 1024}),
    (OWN_MODEL, {"engine.batch_size": 256, "grading.type": "exact"}),
    (OWN_DATA, {"grading.type": "math"}),
    (OWN_DATA | {"grading": {"type": "exact"}}, {"grading.type": "exact"}),
    ({"grading": {"type": "code"}}, {"grading.timeout": 10.0}),
    ({"grading": {"type": "code", "timeout": 3.0}}, {"grading.timeout": 3.0}),
    # With no method named single responses teach. vLLM's probabilities are not the learner's.
    (
        {"prompts": {"batch_size": 32}, "step": {"shift_beliefs": True}},
        {
            "prompts.type": "posterior",
            "belief.type": "logit_kalman",
            "prompts.batch_size": 32,
            "exit.type": "fixed_count",
            "exit.samples": 1,
            "advantage.objective": "linear",
            "advantage.baseline": "belief",
            "learner.average": "responses",
            "learner.mini_batches": 8,
            "learner.warmup_updates": 40,
            "learner.old_logprobs": "engine",
            "step.response_cap": 1.0,
        },
    ),
    ({"engine": {"type": "vllm"}}, {"learner.old_logprobs": "learner"}),
    ({"step": {"response_cap": 0.0}}, {"step.response_cap": 0.0, "exit.samples": 1}),
    # Anything of a method begins from Reinforce-Ada.
    (BALANCED, FOR_GROUPS),
    ({"prompts": {"type": "uniform"}}, FOR_GROUPS),
    ({"schedule": {"type": "rounds"}}, FOR_GROUPS),
    ({"group": {"size": 4}}, FOR_GROUPS),
    ({"advantage": {"objective": "reference"}}, FOR_GROUPS),
    ({"belief": {"type": "own"}}, FOR_GROUPS),
    ({"grading": {"type": "function", "function": "graders:half_credit"}}, FOR_GROUPS),
    ({"data": {"train": "tool-sums"}, "episode": {"type": "calculator"}}, FOR_GROUPS),
    # A fixed count is GRPO with all that belongs to it; by default as many as a group has.
    *(
        (
            {"exit": {"type": "fixed_count", **given}},
            {
                "exit.samples": samples,
                "schedule.size": samples,
                "schedule.rounds": 1,
                "group.size": samples,
                "group.strategy": "all",
                "group.zero_variance": "keep",
                "advantage.objective": "grpo",
                "advantage.scale_by_std": True,
            },
        )
        for given, samples in (({"samples": 8}, 8), ({}, 4))
    ),
    (
        GRPO | {"schedule": {"size": 2, "rounds": 3}, "group": {"zero_variance": "drop"}},
        {"schedule.size": 2, "schedule.rounds": 3, "group.zero_variance": "drop"},
    ),
    (
        GRPO | {"advantage": {"scale_by_std": False}},
        {"advantage.objective": "grpo", "advantage.scale_by_std": False},
    ),
    # With a belief as baseline every response is trained on.
    (BY_BELIEF, {"group.size": 1, "group.strategy": "all", "group.zero_variance": "keep"}),
    (BY_BELIEF, {"advantage.objective": "linear"}),
    ({"advantage": {"baseline": "belief"}}, {"group.strategy": "all"}),
    # Other runs of a single response than those with a belief as baseline.
    (GRPO | {"advantage": {"objective": "reward"}}, {"exit.samples": 4}),
    (
        {
            "exit": {"type": "fixed_count", "samples": 1},
            "allocation": {"type": "estimated"},
            "schedule": {"size": 32},
        },
        {"exit.samples": 1},
    ),
    # An environment is task and grader unless others are given.
    (SUMS, {"data.train": "environment", "grading.type": "environment", "grading.timeout": 60.0}),
    (
        {"data": {"environment": "sums", "train": "chosen.parquet"}},
        {"data.train": "chosen.parquet", "grading.type": "environment", "grading.timeout": 60.0},
    ),
    (
        {"data": {"environment": "sums", "train": "running-sums"}},
        {"data.train": "running-sums", "grading.type": "exact", "grading.timeout": 2.0},
    ),
    (SUMS | {"grading": {"type": "math"}}, {"grading.type": "math", "grading.timeout": 2.0}),
    (SUMS | {"grading": {"timeout": 5.0}}, {"grading.type": "environment", "grading.timeout": 5.0}),
]


@pytest.mark.parametrize(("given", "found"), DEPENDENT)
def test_defaults_depend_on_model_task_and_method(given, found):
    config = make_config(given)
    assert {name: reduce(getattr, name.split("."), config) for name in found} == found


def test_tinker_takes_the_same_step():
    tinker = {"backend": {"type": "tinker"}, "model": {"path": "Qwen/Qwen3-8B"}}
    assert step_recipe(make_config(tinker)) == step_recipe(make_config())


def test_another_exit_rule_on_the_command_line_replaces_the_whole_section(settle):
    for toml in ("[exit]\ntype = 'balanced'\npositives = 3\n", "[exit]\npositives = 3\n"):
        config = settle("--exit.type", "fixed_count", toml=toml)
        assert config.exit.make() == FixedCount(samples=4)
        assert config.advantage.objective == "grpo"
    same = "[exit]\ntype = 'positive_focused'\npositives = 3\n"
    assert settle("--exit.type", "positive_focused", toml=same).exit.make() == PositiveFocused(3)


def test_settings_of_an_objective_stay_where_the_command_line_names_another(settle):
    toml = "[advantage]\nobjective = 'linear'\nestimates = 'unbiased'\n"
    assert settle("--advantage.objective", "log", toml=toml).advantage.estimates == "unbiased"
    assert settle("--advantage.objective", "grpo", toml=toml).advantage.own() == {
        "scale_by_std": False
    }


def test_the_sampler_chooses_by_the_belief_that_is_named():
    sampler = make_sampler(make_config(BY_BELIEF), list("abcdefgh"), {})
    assert isinstance(sampler.belief, LogitKalman)
    assert (sampler.belief.total, sampler.belief.noise) == (8, 0.05)
    uniform = make_config({"prompts": {"type": "uniform", "batch_size": 8}})
    assert isinstance(make_sampler(uniform, list("abcdefgh"), {}).belief, DecayedBeta)


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


UNIFORM = {"prompts": {"type": "uniform", "batch_size": 8}}
NEEDS_FEATURES = "such as `belief.type` = `logit_kalman`"


@pytest.mark.parametrize(
    ("others", "belief", "message"),
    [
        (
            BY_BELIEF,
            {"type": "logit_kalman", "features": ["embedding"]},
            "names embedding; the data has level, source, mine",
        ),
        (
            BY_BELIEF,
            {"type": "logit_kalman", "features": ["source"]},
            "the column 'source' is empty",
        ),
        ({}, {"type": "constant", "features": ["level"]}, NEEDS_FEATURES),
        ({}, {"type": "constant", "history": ["runs/earlier"]}, NEEDS_FEATURES),
        (UNIFORM, {"features": ["level"]}, NEEDS_FEATURES),
        (UNIFORM, {"history": ["runs/earlier"]}, NEEDS_FEATURES),
    ],
)
def test_features_that_the_data_lacks_or_the_belief_does_not_take_are_refused(
    others, belief, message
):
    with pytest.raises(ConfigError, match=message):
        features_of(others | {"belief": belief})


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


@pytest.mark.parametrize("benchmark", ["math500", "owner/name"])
def test_the_built_in_model_is_refused_benchmarks_that_it_cannot_read(benchmark):
    with pytest.raises(
        ConfigError, match=rf"cannot be evaluated on {benchmark}: .*`--model\.path`"
    ):
        make_settings(EvaluateConfig, {"benchmarks": ["running-sums", benchmark]})
    with_model = {"benchmarks": [benchmark], "model": {"path": "mine"}}
    assert make_settings(EvaluateConfig, with_model).benchmarks == [benchmark]
