"""Settings: where they come from, and which wins."""

import json
import re
import tomllib
from dataclasses import asdict
from operator import attrgetter

import pytest

from rollwise.cli import COMMANDS, main
from rollwise.config import KINDS, CompareConfig, PlanConfig, make_config, make_settings, read_toml
from rollwise.config.base import merge
from rollwise.config.reading import declared, setting_types
from rollwise.errors import ConfigError
from rollwise.sampling import Balanced, FixedCount

OWN_MODEL = {"model": {"path": "./mine"}}


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(settle):
    config = settle("--steps", "7", "--engine.batch_size", "9", toml="steps = 5\nseed = 6\n")
    assert (config.steps, config.seed, config.engine.batch_size) == (7, 6, 9)
    config = settle(
        "--exit.negatives", "4", toml="method = 'reinforce_ada'\n[exit]\npositives = 3\n"
    )
    assert config.exit.make() == Balanced(positives=3, negatives=4)
    file = {"methods": {"a": {"exit": {"samples": 4}}}, "verl": {"a": {"b": 1}}}
    merged = merge(file, {"methods": {"a": {"seed": 3}}, "verl": {"a": {"c": 2}}})
    assert merged["methods"]["a"] == {"exit": {"samples": 4}, "seed": 3}
    assert merged["verl"]["a"] == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("records.trackers", ["a,b"], ["a", "b"]),
        ("records.trackers", ["a", "b"], ["a", "b"]),
        ("records.trackers", ["[]"], []),
        *(("data.instruction", [t], t) for t in ('say "a, b" and [c]', "{x", "123", "none at all")),
        ("grading.workers", ["none"], None),
        ("data.environment_arguments", ['{"count": 5}'], {"count": 5}),
    ],
)
def test_a_value_on_the_command_line(settle, name, texts, value):
    given = [word for text in texts for word in (f"--{name}", text)]
    assert attrgetter(name)(settle(*given, toml="[grading]\nworkers = 3\n")) == value


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
        {"method": "grpo", "exit": {"samples": 8}},
        {"exit": {"type": "positive_focused"}, "schedule": {"rounds": 2}},
        {"grading": {"type": "function", "function": "mine:grade", "workers": 2}, "seed": 3},
        {"learner": {"max_grad_norm": float("inf")}, "records": {"trackers": ["tensorboard"]}},
    ],
)
def test_recorded_settings_make_the_same_settings_again(given):
    config = make_config(given)
    recorded = json.loads(json.dumps(asdict(config)))
    assert make_config(recorded) == config


def test_every_setting_is_described():
    """In `--help` as in the TOML: a setting without a line of its own could not be looked up."""
    settings = [each for kind in KINDS.values() for each in declared(kind)]
    names = [name for name, field, section in settings if section and not field.meaning]
    assert settings and names == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_has_an_example_and_names_every_setting(command, helped):
    shown = helped(command)
    assert shown.startswith(f"usage: rollwise {command}")
    assert f"Example: rollwise {command} " in shown
    kind = COMMANDS[command].kind
    topics = {name.partition(".")[0] for name in setting_types(kind)} if kind else set()
    for topic in topics:
        assert topic in shown
        of_topic = helped(command, topic)
        names = (n for n in setting_types(kind) if n.partition(".")[0] == topic)
        assert [n for n in names if not re.search(rf"^(  --)?{n}( =|$)", of_topic, re.M)] == []


@pytest.fixture
def helped(capsys, monkeypatch):
    """What `--help` prints, on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def helped(command, *topic):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help", *topic])
        shown = capsys.readouterr().out
        assert ended.value.code == 0
        assert max(map(len, shown.splitlines())) <= 80
        return shown

    return helped


def test_help_shows_what_is_set_most_with_defaults_and_a_section_with_types_and_limits(helped):
    common = re.findall(r"^  --([\w.]+) ", helped("train").partition("common settings")[2], re.M)
    assert 15 <= len(common) <= 25
    assert {"steps", "model.path", "learner.learning_rate", "engine.batch_size"} <= {*common}
    shown = " ".join(helped("train").split())
    assert re.search(r"--learner.learning_rate .*? after the warm-up. \[1e-06\]", shown)
    assert re.search(r"--exit.type .*? balanced, positive_focused, fixed_count. \[fixed", shown)
    learner = " ".join(helped("train", "learner").split())
    assert "--learner.clip_low (a number, above 0, below 1, default 0.2)" in learner
    assert "--learner.average (tokens or responses, default responses)" in learner
    assert "--learner.packed (true or false, default true) Whether responses" in learner
    rules = helped("train", "exit").split("\nexit.type = ")
    assert "  --exit.samples\n      (an integer, at least 1, default 1)\n      Resp" in rules[3]
    assert "give_up_below" in rules[0] and "fixed_count (default)" in rules[3]
    assert [rule.count("--exit.positives") for rule in rules] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "invalid choice: 'trian' (choose from 'train', "),
        (["train", "--steps"], "argument --steps: expected one argument"),
        (["train", "--steps", "--output", "x"], "usage: rollwise train "),
        (["train", "a.toml", "b.toml"], "usage: rollwise train "),
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
        (["train", "--resum"], "there is no option `--resum`; did you mean `--resume`?"),
        (["train", "--help", "lerner"], "there is no setting `lerner`"),
        (["evaluate", "--benchmarks", "[x.jsonl"], "`benchmarks`: on the command line a list is"),
        (["train", "--data.environment_arguments", "{count: 4}"], "a table as JSON, such as"),
        (["train", "--stpes", "3"], "there is no option `--stpes`; did you mean `--steps`?"),
        (["train", "--learner.lr=3"], "`learner.lr`; did you mean `learner.learning_rate`?"),
        (["train", "--lr", "3"], "mean `--model.lora_rank` or `--learner.learning_rate`?"),
        (["train", "--batch-size=3"], "mean `--prompts.batch_size` or `--engine.batch_size`?"),
        (["train", "--temp=3"], "did you mean `--engine.temperature`?"),
        (["train", "--model", "Qwen/x"], "is a section: give `--model.path Qwen/x`, or in TOML"),
        # Settings of `train` that another command calls otherwise, or does not have.
        (["evaluate", "--evaluation.samples", "4"], "did you mean `samples`?"),
        (["evaluate", "--data.train", "x.jsonl"], "did you mean `benchmarks`?"),
        (["prepare", "--data.train", "x.jsonl"], "did you mean `data.sources`?"),
        (["evaluate", "--learner.clip_low=1"], "`learner.clip_low`; only `rollwise train` has it"),
        (["compare", "--engine.batch_size=9"], "did you mean `base.engine.batch_size`?"),
        (["evaluate", "--data", "x.jsonl"], "`data` is a section: give `--benchmarks x.jsonl`"),
        (["prepare", "--data", "x.jsonl"], "`data` is a section: give `--data.sources x.jsonl`"),
        (
            ["compare", "--steps", "1", "--methods.a.exit", "fixed_count"],
            "method `a`: `exit` is a section: give `--exit.type fixed_count`",
        ),
        (
            ["compare", "--steps", "1", "--methods.a.exit.tpye", "balanced"],
            "method `a`: there is no setting `exit.tpye`; did you mean `exit.type`?",
        ),
    ],
)
def test_a_setting_that_there_is_not_ends_the_command(arguments, message, capsys, tmp_path):
    assert main([*arguments, "--output", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--exit.type=fixed_count", "--exit.samples=2"],
        ["--exit", '{"type": "fixed_count", "samples": 2}'],
        ["--exit", '{type = "fixed_count"}', "--exit.samples", "2"],
    ],
)
def test_a_section_is_given_by_keys_or_as_a_table(settle, arguments):
    toml = "method = 'reinforce_ada'\n[exit]\npositives = 3\n"
    assert settle(*arguments, toml=toml).exit.make() == FixedCount(2)


def check(given):
    """Make the settings of the command that a file is for; verl's tests check the table `verl`."""
    given = {section: value for section, value in given.items() if section != "verl"}
    if "prices" in given:
        config = make_settings(PlanConfig, given)
        assert [config.method(name) for name in config.methods]
    elif "methods" in given:
        length = (
            {}
            if {"rewards", "steps", "tokens", "seconds"} & given.keys()
            else {"rewards": "recorded"}
        )
        make_settings(CompareConfig, given, length).check_methods()
    elif not {"choose", "choosing"} & given.keys():
        make_config(given)


def test_every_example_in_the_repository_is_valid(root):
    paths = [*root.glob("examples/**/*.toml")]
    assert paths
    for path in paths:
        check(read_toml(path))


def test_every_toml_block_in_the_documents_is_valid(root):
    pages = {root / "README.md", *root.glob("docs/**/*.md")} - {root / "docs/tutorial.md"}
    blocks = [b for p in pages for b in re.findall(r"```toml\n(.*?)```", p.read_text(), re.DOTALL)]
    assert blocks
    for block in blocks:
        check(tomllib.loads(block) | {"plugin_folder": str(root / "examples/plugins")})
