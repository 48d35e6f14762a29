"""Settings: what depends on what."""

import json
import tomllib
from operator import attrgetter

import pytest

from rollwise.beliefs import DecayedBeta, LogitKalman
from rollwise.config import EvaluateConfig, PrepareConfig, make_config, make_settings
from rollwise.config.step import make_sampler
from rollwise.errors import ConfigError
from rollwise.records import flatten
from rollwise.sampling import FixedCount, PositiveFocused

SINGLE_RESPONSES = """
method = "single"
prompts = {type = "posterior", exploration = 0.5, batch_size = 256}
belief.type = "logit_kalman"
exit = {type = "fixed_count", samples = 1}
schedule = {size = 1, rounds = 1}
group = {size = 1, strategy = "all", zero_variance = "keep"}
advantage = {objective = "linear", baseline = "belief"}
step.normalize_gradients = true
[learner]
average = "responses"
mini_batches = 16
warmup_updates = 40
max_grad_norm = 0.03
old_logprobs = "engine"
learning_rate = 1.4e-4
"""

PUBLISHED = """
exit = {type = "balanced", positives = 2, negatives = 2}
schedule = {type = "rounds", size = 8, rounds = 4}
group = {size = 4, strategy = "balanced", zero_variance = "drop"}
advantage.objective = "reference"
prompts = {type = "uniform", batch_size = 64}
learner = {mini_batches = 1, warmup_updates = 10, max_grad_norm = 1.0, average = "tokens"}
step.normalize_gradients = false
"""
"""The settings of Reinforce-Ada's paper."""

GROUPS = """
method = "grpo"
exit.samples = N
schedule = {size = N, rounds = 1}
group = {size = N, strategy = "all", zero_variance = "keep"}
advantage = {objective = "grpo", scale_by_std = true}
"""

BY_BELIEF = """
prompts = {type = "worth", batch_size = 8}
belief = {type = "logit_kalman", noise = 0.05}
"""

ADA = "method = 'reinforce_ada'\n"

DEPENDENT = [
    # The built-in model learns the built-in task, whose answers take 40 characters at most. On a
    # set of mostly hard and easy sums some runs stalled at the rate that suits groups.
    ("", "model = {path = 'running-sums', cpu_threads = 1}\ndata.train = 'running-sums'"),
    ("", "grading.type = 'exact'\nengine.max_new_tokens = 48"),
    ("", SINGLE_RESPONSES),
    ("model.path = './mine'", "learner.learning_rate = 1e-6\ngrading.type = 'exact'"),
    ("model.path = './mine'", "engine = {max_new_tokens = 1024, batch_size = 256}"),
    ("data.train = 'own.parquet'", "grading.type = 'math'"),
    ("data.train = 'own.parquet'\ngrading.type = 'exact'", "grading.type = 'exact'"),
    ("grading.type = 'code'", "grading.timeout = 10.0"),
    ("grading = {type = 'code', timeout = 3.0}", "grading.timeout = 3.0"),
    # vLLM's probabilities are not the learner's.
    ("engine.type = 'vllm'", "learner.old_logprobs = 'learner'"),
    # A belief expects rewards of 0 and 1; where others may come, groups are compared.
    ("grading.type = 'math'", "method = 'single'"),
    ("grading = {type = 'function', function = 'graders:half_credit'}", GROUPS.replace("N", "4")),
    ("data.environment = 'sums'", "method = 'grpo'"),
    ("data.train = 'tool-sums'", "method = 'grpo'\nepisode.type = 'calculator'"),
    ("data.train = 'tool-sums'\nepisode.type = 'none'", "method = 'single'"),
    ("method = 'single'\ndata.train = 'tool-sums'", SINGLE_RESPONSES),
    # A number of responses takes its schedule and size of a group along; nothing else does.
    ("exit.samples = 2", "schedule = {size = 2, rounds = 1}\ngroup.size = 2\nmethod = 'single'"),
    ("method = 'grpo'\nexit.samples = 8", GROUPS.replace("N", "8")),
    ("method = 'grpo'\nschedule = {size = 2, rounds = 3}", "schedule.rounds = 3\ngroup.size = 4"),
    ("exit.type = 'balanced'", "schedule = {size = 8, rounds = 4}\nadvantage.baseline = 'belief'"),
    (ADA, PUBLISHED),
    (ADA, "learner.learning_rate = 2e-4"),
    (ADA + "exit.type = 'fixed_count'", "group = {size = 4, strategy = 'balanced'}"),
    (
        ADA + "allocation = {type = 'estimated', maximum = 16}",
        "exit = {type = 'fixed_count', samples = 16}\nschedule = {size = 16, rounds = 1}",
    ),
    (ADA + "allocation.type = 'gvm'\nexit.samples = 1\nschedule.size = 32", "exit.samples = 1"),
    (BY_BELIEF, "group = {size = 1, strategy = 'all'}\nprompts.type = 'worth'"),
    # An environment is task and grader unless others are given.
    ("data.environment = 'sums'", "data.train = 'environment'"),
    ("data.environment = 'sums'", "grading = {type = 'environment', timeout = 60.0}"),
    (
        "data = {environment = 'sums', train = 'chosen.parquet'}",
        "data.train = 'chosen.parquet'\ngrading = {type = 'environment', timeout = 60.0}",
    ),
    (
        "data = {environment = 'sums', train = 'running-sums'}",
        "data.train = 'running-sums'\ngrading = {type = 'exact', timeout = 2.0}",
    ),
    ("data.environment = 'sums'\ngrading.type = 'math'", "grading.timeout = 2.0"),
    (
        "data.environment = 'sums'\ngrading.timeout = 5.0",
        "grading = {type = 'environment', timeout = 5.0}",
    ),
]


@pytest.mark.parametrize(("given", "found"), DEPENDENT)
def test_defaults_depend_on_model_task_and_method(given, found):
    config = make_config(tomllib.loads(given))
    wanted = flatten(tomllib.loads(found), ".")
    assert {name: attrgetter(name)(config) for name in wanted} == wanted


def test_another_exit_rule_on_the_command_line_replaces_the_whole_section(settle):
    toml = ADA + "[exit]\npositives = 3\n"
    assert settle("--exit.type", "fixed_count", toml=toml).exit.make() == FixedCount(samples=4)
    same = "[exit]\ntype = 'positive_focused'\npositives = 3\n"
    assert settle("--exit.type", "positive_focused", toml=same).exit.make() == PositiveFocused(3)


def test_settings_of_an_objective_stay_where_the_command_line_names_another(settle):
    toml = ADA + "[advantage]\nobjective = 'linear'\nestimates = 'unbiased'\n"
    assert settle("--advantage.objective", "log", toml=toml).advantage.estimates == "unbiased"
    assert settle("--advantage.objective", "grpo", toml=toml).advantage.own() == {
        "scale_by_std": False
    }


def test_the_sampler_chooses_by_the_belief_that_is_named():
    sampler = make_sampler(make_config(tomllib.loads(BY_BELIEF)), list("abcdefgh"), {})
    assert isinstance(sampler.belief, LogitKalman)
    assert (sampler.belief.total, sampler.belief.noise) == (8, 0.05)
    uniform = make_config({"method": "grpo", "prompts": {"batch_size": 8}})
    assert isinstance(make_sampler(uniform, list("abcdefgh"), {}).belief, DecayedBeta)


COLUMNS = {"level": [1] * 4 + [2] * 4, "source": [None] * 8, "mine": list(range(8))}


def features_of(prompts, belief, columns=COLUMNS):
    settings = {"method": "mopps", "prompts": {"type": prompts, "batch_size": 8}, "belief": belief}
    sampler = make_sampler(make_config(settings), list("abcdefgh"), columns)
    return sampler.belief.features.columns


def test_a_belief_takes_the_columns_that_the_data_has_unless_told_which():
    named = {"type": "logit_kalman"}
    assert features_of("worth", named) == features_of("worth", {}) == "level"
    assert features_of("worth", named | {"features": ["mine"]}) == "mine"
    assert features_of("worth", named | {"features": []}) == ""
    assert features_of("worth", named, {"source": [None] * 8}) == ""


NEEDS_FEATURES = "such as `belief.type` = `logit_kalman`"


@pytest.mark.parametrize(
    ("prompts", "belief", "message"),
    [
        ("worth", {"features": ["embedding"]}, "names embedding; the data has level, source, mine"),
        ("worth", {"features": ["source"]}, "the column 'source' is empty"),
        ("worth", {"type": "latest", "features": ["level"]}, NEEDS_FEATURES),
        ("uniform", {"features": ["level"]}, NEEDS_FEATURES),
    ],
)
def test_features_that_the_data_lacks_or_the_belief_does_not_take_are_refused(
    prompts, belief, message
):
    with pytest.raises(ConfigError, match=message):
        features_of(prompts, belief)


@pytest.mark.parametrize("command", [EvaluateConfig, PrepareConfig])
def test_the_model_of_a_run_is_asked_with_the_limit_of_the_run(tmp_path, command):
    run = tmp_path / "run"
    checkpoint = run / "checkpoints/step-000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text('{"model_type": "qwen2"}')
    about = {"engine": {"max_new_tokens": 3072}, "data": {"instruction": "Think."}}
    (run / "config.json").write_text(json.dumps({"config": about}))
    for model in (run, checkpoint):
        named = {"model": {"path": str(model)}}
        assert make_settings(command, named).engine.max_new_tokens == 3072
        asked = getattr(make_settings(command, named).data, "instruction", None)
        assert asked == (
            "Think." if command is EvaluateConfig else ""
        )  # `prepare` is for other data
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
    refusal = rf"cannot be evaluated on {benchmark}: .*`--model\.path`"
    with pytest.raises(ConfigError, match=refusal):
        make_settings(EvaluateConfig, {"benchmarks": ["running-sums", benchmark]})
    with_model = {"benchmarks": [benchmark], "model": {"path": "mine"}}
    assert make_settings(EvaluateConfig, with_model).benchmarks == [benchmark]


@pytest.mark.parametrize(
    ("name", "size", "threads"),
    [
        ("model.safetensors", 1_400_000, 1),
        ("model.safetensors", 60_000_000, None),
        ("adapter_model.safetensors", 1_400_000, None),  # of a model that may be large
    ],
)
def test_small_models_run_in_one_thread(tmp_path, name, size, threads):
    with (tmp_path / name).open("wb") as file:
        file.truncate(size)
    config = make_config({"model": {"path": str(tmp_path)}})
    assert config.model.cpu_threads == threads
