"""Reading settings from files and the command line, and saying what is wrong with them."""

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from rollwise.config.base import CommandConfig, merge
from rollwise.config.settings import TrainConfig
from rollwise.config.strategies import DEFAULT_STRATEGIES, STRATEGIES, Section
from rollwise.errors import ConfigError

Config = TypeVar("Config", bound=CommandConfig)


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def add_settings(
    parser: argparse.ArgumentParser, kind: type[CommandConfig] = TrainConfig
) -> CliSettingsSource[argparse.ArgumentParser]:
    """Give `parser` an option `--section.key` for every setting of a command."""
    source: CliSettingsSource[argparse.ArgumentParser]
    source = CliSettingsSource(kind, root_parser=parser)
    texts = {f"--{name}": text for name, text in _help_texts(kind)}
    for action in parser._actions:
        for option in action.option_strings:
            action.help = texts.get(option, action.help)
    return source


def _help_texts(command: type[CommandConfig]) -> Iterable[tuple[str, str]]:
    """Say of every setting of a section what it means, for which strategy, and its default.

    pydantic-settings knows only one of several strategies here, and only the declared defaults.
    """
    built_in = command.defaults_for({})
    for name, field in command.model_fields.items():
        kinds = sections_of(field.annotation)
        for key in dict.fromkeys(key for kind in kinds for key in kind.model_fields):
            owners = [kind for kind in kinds if key in kind.model_fields]
            if key == "type" and name in DEFAULT_STRATEGIES:
                text = f"The strategy. (default: {DEFAULT_STRATEGIES[name]})"
            else:
                meanings = [
                    _meaning(kind, key, name_it=len(owners) < len(kinds)) for kind in owners
                ]
                text = " ".join(dict.fromkeys(meanings))
            if key in built_in.get(name, {}) and key != "type":
                text += f" (built-in model: {built_in[name][key]})"
            if (name, key) == ("grading", "type"):
                text += " (built-in task: exact)"
            yield f"{name}.{key}", text.replace("%", "%%")


def _meaning(kind: type[Section], key: str, name_it: bool) -> str:
    field = kind.model_fields[key]
    owner = f"{kind.model_fields['type'].default}: " if name_it else ""
    default = field.get_default(call_default_factory=True)
    shown = "" if default is None or default == "" else f" (default: {default})"
    return f"{owner}{' '.join((field.description or '').split())}{shown}"


def make_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Do what `make_settings` does, for `rollwise train`."""
    return make_settings(TrainConfig, *layers)


def make_settings(kind: type[Config], *layers: Mapping[str, Any]) -> Config:
    """Check the settings of a command and fill in the defaults; later layers win.

    Raises:
        ConfigError: Names each unknown key and each bad value, what it must be and what it got.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return kind(**merged)
    except ValidationError as error:
        problems = error.errors()
        # A bad value also spoils the defaults that hang on it; of those the user knows nothing.
        own = [problem for problem in problems if problem["loc"] and problem["loc"][0] in merged]
        raise ConfigError("\n".join(_explain(kind, p) for p in own or problems)) from None


def _explain(kind: type[CommandConfig], problem: Mapping[str, Any]) -> str:
    """Say in one line which setting is wrong, what it must be and what it got."""
    place = [str(part) for part in problem["loc"]]
    strategy = ""
    if len(place) > 1 and place[1] in STRATEGIES:
        strategy = place.pop(1)
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        return explain_unknown(key, strategy, kind)
    if problem["type"] == "union_tag_invalid":
        kinds, given = problem["ctx"]["expected_tags"].replace("'", "`"), problem["input"]
        return f"`{key}.type`: should be one of {kinds}; it is {given['type']!r}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message.removeprefix("Input ").replace("'", "`")
    subject = f"`{key}`: " if key else ""
    got = "" if isinstance(problem["input"], Mapping) else f"; it is {problem['input']!r}"
    return f"{subject}{message}{got}"


def explain_unknown(key: str, strategy: str = "", kind: type[CommandConfig] = TrainConfig) -> str:
    """Say that there is no such setting, or none of this strategy, and what may have been meant."""
    names = list(setting_names(kind))
    if key in names:
        return f"`{key}` is not a setting of type `{strategy}`"
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no setting `{key}`{hint}"


def setting_names(kind: type[CommandConfig] = TrainConfig) -> Iterable[str]:
    """List every setting of a command as `section.key`."""
    for name, field in kind.model_fields.items():
        sections = sections_of(field.annotation)
        if not sections:
            yield name
        for section in sections:
            yield from (f"{name}.{key}" for key in section.model_fields)


def sections_of(annotation: Any) -> list[type[Section]]:
    """List the sections that a setting may be: one, or one for each strategy."""
    candidates = get_args(annotation) or (annotation,)
    return [c for c in candidates if isinstance(c, type) and issubclass(c, Section)]
