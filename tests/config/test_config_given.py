"""Settings: where they come from, and which wins."""

import json
import re
import tomllib
from operator import attrgetter

import pytest

from rollwise.cli import COMMANDS, main
from rollwise.config import CompareConfig, TrainConfig, make_config, make_settings, read_toml
from rollwise.config.base import merge
from rollwise.config.reading import sections_of, setting_types
from rollwise.errors import ConfigError
from rollwise.sampling import Balanced, FixedCount

OWN_MODEL = {"model": {"path": "./mine"}}


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(settle):
    config = settle("--steps", "7", "--engine.batch_size", "9", toml="steps = 5\nseed = 6\n")
    assert (config.steps, config.seed, config.engine.batch_size) == (7, 6, 9)
    config = settle("--exit.negatives", "4", toml="[exit]\npositives = 3\n")
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
        {"exit": {"type": "fixed_count", "samples": 8}},
        {"exit": {"type": "positive_focused"}, "schedule": {"rounds": 2}},
        {"grading": {"type": "function", "function": "mine:grade", "workers": 2}, "seed": 3},
        {"learner": {"max_grad_norm": float("inf")}, "records": {"trackers": ["tensorboard"]}},
    ],
)
def test_recorded_settings_make_the_same_settings_again(given):
    config = make_config(given)
    recorded = json.loads(json.dumps(config.model_dump(mode="json")))
    assert make_config(recorded) == config


def test_every_setting_is_described():
    """In `--help` as in the TOML: a setting without a line of its own could not be looked up."""
    sections = {name.split(".")[0] for name in setting_types(TrainConfig)}
    assert sections == set(TrainConfig.model_fields)
    for field in TrainConfig.model_fields.values():
        for section in sections_of(field.annotation):
            own = section.model_fields.items()
            assert [key for key, setting in own if not setting.description] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_has_an_example_and_names_every_setting(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"usage: rollwise {command}")
    assert max(map(len, shown.splitlines())) <= 80
    assert f"Example: rollwise {command} " in shown
    if command == "evaluate":  # which by default asks a trained model for mathematics
        assert "--benchmarks running-sums" in shown
    kind = COMMANDS[command].kind
    for name in setting_types(kind) if kind else ():
        section, _, key = name.rpartition(".")
        assert key in shown and (f"--{section}" in shown), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "invalid choice: 'trian' (choose from 'train', "),
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


def without_other_programs(given):
    """Take out the table of verl's own settings, which verl's tests check."""
    return {section: value for section, value in given.items() if section != "verl"}


def test_every_example_in_the_repository_is_valid(root):
    paths = [*root.glob("examples/**/*.toml")]
    assert paths
    for path in paths:
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
