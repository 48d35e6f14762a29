"""Reading settings from files and the command line, and reporting errors in them."""

import difflib
import functools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError, create_model

from rollwise.config.base import CommandConfig, merge, setting
from rollwise.config.choices import CHOICES
from rollwise.config.sections import NO_SOURCE, Section, chosen
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError
from rollwise.plugins import is_plugin

Config = TypeVar("Config", bound=CommandConfig)


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file; plug-ins that it names may lie in its folder.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    if any(
        plugins_in(table) or is_plugin(setting(table, "grading", "function", ""))
        for table in _settings_of_runs(given)
    ):
        given.setdefault("plugin_folder", str(path.parent.absolute()))
    return given


def _settings_of_runs(given: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield each table with settings of a run: the whole, or those of a comparison's methods."""
    yield given
    methods = given.get("methods")
    tables = [given.get("base"), *(methods.values() if isinstance(methods, Mapping) else ())]
    yield from (table for table in tables if isinstance(table, Mapping))


def plugins_in(given: Mapping[str, Any]) -> dict[str, str]:
    """List the sections for which settings name a plug-in: section -> `module:Class`."""
    named = {name: choice.plugin(given) for name, choice in CHOICES.items()}
    return {name: plugin for name, plugin in named.items() if plugin}


def with_plugins(kind: type[Config], given: Mapping[str, Any]) -> type[Config]:
    """Add the plug-ins that settings name to what a command's sections choose from.

    Raises:
        ConfigError: One of them is not found, or cannot be used there.
    """
    named = {s: plugin for s, plugin in plugins_in(given).items() if s in kind.model_fields}
    if not named:
        return kind
    folder = given.get("plugin_folder")
    return _extended(kind, tuple(named.items()), str(folder) if folder else None)


@functools.cache
def _extended(
    kind: type[Config], named: tuple[tuple[str, str], ...], folder: str | None
) -> type[Config]:
    fields: dict[str, Any] = {
        section: (CHOICES[section].sections(plugin, folder), chosen()) for section, plugin in named
    }
    return create_model(kind.__name__, __base__=kind, __cls_kwargs__=NO_SOURCE, **fields)


def make_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Do what `make_settings` does, for `rollwise train`."""
    return make_settings(TrainConfig, *layers)


def make_settings(kind: type[Config], *layers: Mapping[str, Any]) -> Config:
    """Check the settings of a command and fill in the defaults; later layers win.

    Raises:
        ConfigError: Names each unknown key and each bad value, what it must be and what it got.
    """
    merged: dict[str, Any] = functools.reduce(merge, layers, {})
    whole = with_plugins(kind, merged)
    _refuse_truth_values(whole, merged)
    try:
        return whole(**merged)
    except ValidationError as error:
        problems = error.errors()
        # A bad value also spoils the defaults that depend on it; of those the user knows nothing.
        own = [problem for problem in problems if problem["loc"] and problem["loc"][0] in merged]
        raise ConfigError("\n".join(_explain(whole, p) for p in own or problems)) from None


def _refuse_truth_values(kind: type[CommandConfig], given: Mapping[str, Any]) -> None:
    """Refuse `true` and `false` for numbers: pydantic takes them as 1 and 0."""
    for name, wanted in setting_types(kind).items():
        section, _, key = name.rpartition(".")
        value = setting(given, section, key, None) if section else given.get(key)
        if isinstance(value, bool) and wanted & {int, float} and bool not in wanted:
            raise ConfigError(f"`{name}`: should be a number; it is {value}")


def _explain(kind: type[CommandConfig], problem: Mapping[str, Any]) -> str:
    """Describe an error in one line: which setting, what it must be, and what it got."""
    place = [str(part) for part in problem["loc"]]
    of_kind = place.pop(1) if len(place) > 1 and place[0] in CHOICES else ""
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        return explain_unknown(key, of_kind, kind)
    if problem["type"] == "union_tag_invalid":
        kinds, given = problem["ctx"]["expected_tags"].replace("'", "`"), problem["input"]
        tag = CHOICES[key].tag
        return (
            f"`{key}.{tag}`: should be one of {kinds}, or `module:Class` of your own; it is "
            f"{given[tag]!r}"
        )
    message = problem["msg"].removeprefix("Value error, ")
    message = message.removeprefix("Input ").replace("'", "`")
    subject = f"`{key}`: " if key else ""
    got = "" if isinstance(problem["input"], Mapping) else f"; it is {problem['input']!r}"
    return f"{subject}{message}{got}"


def explain_unknown(key: str, of_kind: str = "", kind: type[CommandConfig] = TrainConfig) -> str:
    """Say that there is no such setting, or none of this kind, and what may have been meant."""
    names = setting_names(kind)
    if is_plugin(of_kind):
        section = key.partition(".")[0]
        tag = CHOICES[section].tag
        kinds = sections_of(kind.model_fields[section].annotation)
        [chosen_kind] = [each for each in kinds if each.model_fields[tag].default == of_kind]
        own = ", ".join(f"`{section}.{name}`" for name in chosen_kind.model_fields if name != tag)
        return f"there is no setting `{key}` of `{of_kind}`, which has {own or 'none'}"
    if key in names:
        return f"`{key}` is not a setting of type `{of_kind}`"
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no setting `{key}`{hint}"


def setting_names(kind: type[CommandConfig] = TrainConfig) -> list[str]:
    """List every setting of a command as `section.key`."""
    return list(setting_types(kind))


@functools.cache
def setting_types(kind: type[CommandConfig]) -> dict[str, set[Any]]:
    """Return the types that each setting may have: `section.key` -> types, without parameters."""
    types: dict[str, set[Any]] = {}
    for name, field in kind.model_fields.items():
        sections = sections_of(field.annotation)
        if not sections:
            types[name] = _plain_types(field.annotation)
        for section in sections:
            for key, own in section.model_fields.items():
                types.setdefault(f"{name}.{key}", set()).update(_plain_types(own.annotation))
    return types


def _plain_types(annotation: Any) -> set[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return {type(value) for value in inner}
    if origin is Annotated:
        return _plain_types(inner[0])
    if origin in (Union, UnionType):
        return set().union(*map(_plain_types, inner))
    return {origin or annotation}


def sections_of(annotation: Any) -> list[type[Section]]:
    """List the sections that a setting may be: one, or one for each kind."""
    candidates = get_args(annotation) or (annotation,)
    return [c for c in candidates if isinstance(c, type) and issubclass(c, Section)]
