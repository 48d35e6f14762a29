"""Methods by name: what restating, changing and combining settings does to each."""

import re
import tomllib
from dataclasses import asdict

import pytest

from rollwise.commands.described import differing, method_in_words
from rollwise.config import CompareConfig, make_config, make_settings
from rollwise.config.base import nested
from rollwise.errors import ConfigError
from rollwise.methods import METHODS, SECTIONS, method_of
from rollwise.records import flatten

SITUATIONS = [
    *({"method": name} for name in METHODS),
    {},
    {"data": {"train": "tool-sums"}},
    {"data": {"environment": "sums"}},
    {"model": {"path": "mine"}, "data": {"train": "mine.jsonl"}, "engine": {"type": "vllm"}},
    {"backend": {"type": "tinker"}, "tokens": 1000, "evaluation": {"every_tokens": 100}},
    {"method": "reinforce_ada", "allocation": {"type": "gvm"}},
]


@pytest.mark.parametrize("given", SITUATIONS, ids=str)
def test_restating_a_default_changes_nothing(given):
    config = make_config(given)
    settings = asdict(config)
    for name, value in flatten(settings, ".").items():
        assert make_config(given, nested((name, value))) == config, name
    assert make_config(settings) == config


FOLLOWERS = {
    "exit.samples": {"schedule.size", "group.size"},
    "allocation.maximum": {"exit.samples", "schedule.size"},
}
"""What a setting takes along, where a method has it."""

OTHER = {bool: lambda v: not v, int: lambda v: 2 * v + 2, float: lambda v: v / 2 + 0.01}


@pytest.mark.parametrize("method", METHODS)
def test_changing_a_setting_changes_that_and_what_follows_from_it_alone(method):
    before = flatten(asdict(make_config({"method": method})), ".")
    changed = 0
    for name, value in before.items():
        if name.partition(".")[0] not in SECTIONS or type(value) not in OTHER:
            continue
        try:
            config = make_config({"method": method}, nested((name, OTHER[type(value)](value))))
        except ConfigError:  # of a value out of range, or one that excludes others
            continue
        after = flatten(asdict(config), ".")
        assert before.keys() == after.keys()
        found = {each for each in after if after[each] != before[each]}
        assert found == {name} | (FOLLOWERS.get(name, set()) & before.keys()), name
        changed += 1
    assert changed > 20


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("prompts.type", "posterior"),
        ("advantage.objective", "linear"),
        ("group.size", 8),
        ("prompts.exploration", 0.3),
        ("belief.initial_pass_rate", 0.12),
    ],
)
def test_settings_of_the_default_method_leave_it_at_its_draws(flag, value):
    config = make_config({"prompts": {"batch_size": 128}}, nested((flag, value)))
    assert (config.method, config.exit.make().count, config.schedule.make().max_samples) == (
        "single",
        1,
        1,
    )
    assert config.learner == make_config({}).learner
    assert set(differing(config, {})) <= {"prompts.batch_size", flag}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "method: single (no method given; rewards are 0 and 1)"),
        (
            "prompts.batch_size = 128",
            "method: single (no method given; rewards are 0 and 1); differs: "
            "prompts.batch_size 128 (256)",
        ),
        (
            "data.train = 'tool-sums'",
            "method: grpo (no method given; episodes may give any reward; if only 0 and 1, "
            "try `single`)",
        ),
        (
            "grading = {type = 'function', function = 'graders:half'}",
            "method: grpo (no method given; grader `function` may give any reward; if only 0 and "
            "1, try `single`)",
        ),
        ("method = 'grpo'\nexit.samples = 8", "method: grpo; differs: exit.samples 8 (4)"),
        (
            "method = 'grpo'\nexit = {type = 'balanced', positives = 1}",
            "method: grpo; differs: exit.type balanced (fixed_count), exit.positives 1, "
            "schedule.size 8 (4), schedule.rounds 4 (1)",
        ),
    ],
)
def test_the_method_is_said_with_why_and_what_differs(given, said):
    layers = tomllib.loads(given)
    assert method_in_words(make_config(layers), layers) == said


def test_a_method_is_a_table_with_its_name_or_a_name_in_a_list():
    listed = make_settings(CompareConfig, {"steps": 1, "methods": ["single", "grpo", "spo"]})
    tables = {"single": {}, "grpo": {}, "spo": {}, "other": {"method": "grpo"}, "own": {}}
    named = make_settings(CompareConfig, {"steps": 1, "methods": tables})
    assert {n: c.method for n, c in listed.each().items()} == {n: n for n in listed.methods}
    found = [config.method for config in named.each().values()]
    assert found == ["single", "grpo", "spo", "grpo", "single"]
    unknown = make_settings(CompareConfig, {"steps": 1, "methods": ["single", "sopo"]})
    with pytest.raises(ConfigError, match=r"method `sopo`: `method` should .* mean `spo`\?"):
        unknown.check_methods()


def test_every_method_says_what_it_does_and_where_it_is_from():
    for name, method in METHODS.items():
        assert method.about and method.source and method.learns, name
        assert method.settings.keys() <= {*SECTIONS}, name
    with pytest.raises(ValueError, match=r"did you mean `reinforce_ada`\?"):
        method_of("Reinforce-Ada")


def test_all_settings_are_printed_as_toml_each_with_where_it_is_from(tmp_path, capsys):
    from rollwise.cli import main

    file = tmp_path / "mine.toml"
    file.write_text("method = 'grpo'\nexit.samples = 8\nlearner.mini_batches = 4\n")
    assert main(["train", str(file), "--learner.mini_batches", "2", "--print"]) == 0
    shown = capsys.readouterr().out
    for line in (
        'method = "grpo"  # the file',
        "exit.samples = 8  # the file",
        "learner.mini_batches = 2  # the command line",
        "advantage.scale_by_std = true  # the method",
        "steps = 100  # default",
        "# tokens  # unset, default",
    ):
        assert re.search(f"^{re.escape(line)}$", shown, re.M), line
    given = {"method": "grpo", "exit": {"samples": 8}, "learner": {"mini_batches": 2}}
    assert make_config(tomllib.loads(shown)) == make_config(given)
