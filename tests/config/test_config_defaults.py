"""Settings: what depends on what."""

import tomllib
from operator import attrgetter

import pytest

from rollwise.beliefs import DecayedBeta, LogitKalman
from rollwise.config import EvaluateConfig, PrepareConfig, make_config, make_settings
from rollwise.config.step import make_sampler
from rollwise.errors import ConfigError
from rollwise.records import flatten
from rollwise.sampling import FixedCount, PositiveFocused

FOR_GROUPS = """
exit = {type = "balanced", positives = 2, negatives = 2}
schedule = {type = "rounds", size = 8, rounds = 4}
group = {size = 4, zero_variance = "drop"}
advantage.objective = "reference"
prompts = {type = "uniform", batch_size = 64}
learner.mini_batches = 1
step.normalize_gradients = false
"""
"""Reinforce-Ada's, from which all begins that names a method."""

SINGLE_RESPONSES = """
prompts.type = "posterior"
prompts.exploration = 0.5
belief.type = "logit_kalman"
exit = {type = "fixed_count", samples = 1}
advantage = {objective = "linear", baseline = "belief"}
learner.average = "responses"
learner.mini_batches = 16
learner.warmup_updates = 40
learner.max_grad_norm = 0.03
learner.old_logprobs = "engine"
step.normalize_gradients = true
"""

FIXED_COUNT = """
exit.samples = N
schedule = {size = N, rounds = 1}
group = {size = N, strategy = "all", zero_variance = "keep"}
advantage = {objective = "grpo", scale_by_std = true}
"""

BY_BELIEF = """
prompts = {type = "worth", batch_size = 8}
belief = {type = "logit_kalman", noise = 0.05}
exit = {type = "fixed_count", samples = 1}
advantage.baseline = "belief"
"""

DEPENDENT = [
    # The built-in model learns the built-in task, whose answers take 40 characters at most. On a
    # set of mostly hard and easy sums some runs stalled at the rate that suits groups.
    ("", "model = {path = 'running-sums', cpu_threads = 1}\ndata.train = 'running-sums'"),
    ("", "grading.type = 'exact'\nlearner.learning_rate = 1.4e-4\nengine.max_new_tokens = 48"),
    ("exit.type = 'fixed_count'", "learner.learning_rate = 2e-4"),
    ("model.path = './mine'", "learner.learning_rate = 1e-6\ngrading.type = 'exact'"),
    ("model.path = './mine'", "engine = {max_new_tokens = 1024, batch_size = 256}"),
    ("data.train = 'own.parquet'", "grading.type = 'math'"),
    ("data.train = 'own.parquet'\ngrading.type = 'exact'", "grading.type = 'exact'"),
    ("grading.type = 'code'", "grading.timeout = 10.0"),
    ("grading = {type = 'code', timeout = 3.0}", "grading.timeout = 3.0"),
    # With no method named single responses teach. vLLM's probabilities are not the learner's.
    (
        "prompts.batch_size = 32\nstep.normalize_gradients = true",
        SINGLE_RESPONSES + "prompts.batch_size = 32",
    ),
    ("engine.type = 'vllm'", "learner.old_logprobs = 'learner'"),
    ("step.normalize_gradients = false", "step.normalize_gradients = false\nexit.samples = 1"),
    # Anything of a method begins from Reinforce-Ada.
    ("exit.type = 'balanced'", FOR_GROUPS),
    ("prompts.type = 'uniform'", FOR_GROUPS),
    ("schedule.type = 'rounds'", FOR_GROUPS),
    ("group.size = 4", FOR_GROUPS),
    ("advantage.objective = 'reference'", FOR_GROUPS),
    ("belief.type = 'own'", FOR_GROUPS),
    ("grading = {type = 'function', function = 'graders:half_credit'}", FOR_GROUPS),
    ("data.train = 'tool-sums'\nepisode.type = 'calculator'", FOR_GROUPS),
    # A fixed count is GRPO with all that belongs to it; by default as many as a group has.
    ("exit = {type = 'fixed_count', samples = 8}", FIXED_COUNT.replace("N", "8")),
    ("exit.type = 'fixed_count'", FIXED_COUNT.replace("N", "4")),
    (
        "exit.type = 'fixed_count'\nschedule = {size = 2, rounds = 3}",
        "schedule = {size = 2, rounds = 3}",
    ),
    ("exit.type = 'fixed_count'\ngroup.zero_variance = 'drop'", "group.zero_variance = 'drop'"),
    (
        "exit.type = 'fixed_count'\nadvantage.scale_by_std = false",
        "advantage = {objective = 'grpo', scale_by_std = false}",
    ),
    # With a belief as baseline every response is trained on.
    (BY_BELIEF, "group = {size = 1, strategy = 'all', zero_variance = 'keep'}"),
    (BY_BELIEF, "advantage.objective = 'linear'"),
    ("advantage.baseline = 'belief'", "group.strategy = 'all'"),
    # Other runs of a single response than those with a belief as baseline.
    ("exit.type = 'fixed_count'\nadvantage.objective = 'reward'", "exit.samples = 4"),
    (
        "exit = {type = 'fixed_count', samples = 1}\nschedule.size = 32\n"
        "allocation.type = 'estimated'",
        "exit.samples = 1",
    ),
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
    (
        "data.environment = 'sums'\ngrading.type = 'math'",
        "grading = {type = 'math', timeout = 2.0}",
    ),
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
    sampler = make_sampler(make_config(tomllib.loads(BY_BELIEF)), list("abcdefgh"), {})
    assert isinstance(sampler.belief, LogitKalman)
    assert (sampler.belief.total, sampler.belief.noise) == (8, 0.05)
    uniform = make_config({"prompts": {"type": "uniform", "batch_size": 8}})
    assert isinstance(make_sampler(uniform, list("abcdefgh"), {}).belief, DecayedBeta)


COLUMNS = {"level": [1] * 4 + [2] * 4, "source": [None] * 8, "mine": list(range(8))}


def features_of(prompts, belief, columns=COLUMNS):
    settings = {"prompts": {"type": prompts, "batch_size": 8}, "belief": belief}
    sampler = make_sampler(make_config(settings), list("abcdefgh"), columns)
    return sampler.belief.features.columns


def test_a_belief_takes_the_columns_that_the_data_has_unless_told_which():
    named = {"type": "logit_kalman"}
    assert features_of("worth", named) == features_of("worth", {}) == "level,mine"
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
    refusal = rf"cannot be evaluated on {benchmark}: .*`--model\.path`"
    with pytest.raises(ConfigError, match=refusal):
        make_settings(EvaluateConfig, {"benchmarks": ["running-sums", benchmark]})
    with_model = {"benchmarks": [benchmark], "model": {"path": "mine"}}
    assert make_settings(EvaluateConfig, with_model).benchmarks == [benchmark]
