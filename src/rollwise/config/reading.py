"""Reading settings from files and the command line, and reporting errors in them."""

import difflib
import json
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic import ValidationError

from rollwise.config.base import CommandConfig, kind_of, merge, nested, setting
from rollwise.config.choices import CHOICES
from rollwise.config.sections import UNKNOWN_KIND, Section, plain_types
from rollwise.config.train import TrainConfig
from rollwise.errors import ConfigError
from rollwise.plugins import is_plugin

Config = TypeVar("Config", bound=CommandConfig)

Given = list[tuple[str, str]]
"""Settings and their texts, in the order of the command line."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file; plug-ins that it names may be in its folder."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: of a name that no file can have
        said = getattr(error, "strerror", error)
        raise ConfigError(f"cannot read the settings in {path}: {said}") from None
    try:
        given = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    methods = given.get("methods")
    runs = [given, given.get("base"), *(methods.values() if isinstance(methods, Mapping) else ())]
    for run in (run for run in runs if isinstance(run, Mapping)):
        own = any(choice.plugin(run) for choice in CHOICES.values())
        if own or is_plugin(setting(run, "grading", "function", "")):
            given.setdefault("plugin_folder", str(path.parent.absolute()))
    return given


def split_settings(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], Given]:
    """Take `--a.b VALUE` and `--a.b=VALUE` out of a command line; returns the other words first.

    `options` are the command's other options, and whether each takes a value.
    """
    others: list[str] = []
    given: Given = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in options or not option.startswith("--") or option == "--":
            others.append(word)
            if options.get(option) and not equals:
                others.extend(next(([value] for value in rest), []))
            continue
        if not equals:
            value = next(rest, "--")
            if value == "--" or value.partition("=")[0] in options:
                raise ConfigError(f"`{option}` needs a value")
        given.append((option.removeprefix("--"), value))
    return others, given


def read_given(kind: type[CommandConfig], given: Given, below: Mapping[str, Any]) -> dict[str, Any]:
    """Read the texts of settings on the command line as values.

    `below` are the settings of the file, which may name plug-ins.
    """
    texts: dict[str, list[str]] = {}
    for name, text in given:
        texts.setdefault(name, []).append(text)
    plain = (nested((name, told[-1])) for name, told in texts.items() if name not in CHOICES)
    types = setting_types(kind, merge(below, *plain))
    return merge(*(nested((name, _value(name, told, types))) for name, told in texts.items()))


def _value(name: str, texts: Sequence[str], types: Mapping[str, set[Any]]) -> Any:
    """Read a setting that was given one or more times: a list takes all, others the last."""
    text, wanted = texts[-1], types.get(name, {Any})
    if text == "none" and NoneType in wanted:
        return None
    if list in wanted:
        return [member for text in texts for member in _members(name, text)]
    if dict in wanted:
        return _structure(name, text, dict)
    return text if str in wanted or not wanted & {int, float, bool, Any} else _parsed(text)


def _members(name: str, text: str) -> list[Any]:
    if text.startswith("["):
        return list(_structure(name, text, list))
    return text.split(",") if text else []


def _structure(name: str, text: str, kind: type) -> Any:
    if isinstance(value := _parsed(text), kind):
        return value
    raise ConfigError(
        f"`{name}`: on the command line a list is written as a,b and a table as JSON, such as "
        f"'{{\"count\": 4}}'; it is {text!r}"
    )


def _parsed(text: str) -> Any:
    """Read a value in TOML, or else in JSON; a text that is neither stays as it is."""
    with suppress(ValueError, RecursionError):
        [value] = tomllib.loads(f"value = {text}").values()
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


def make_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Do what `make_settings` does, for `rollwise train`."""
    return make_settings(TrainConfig, *layers)


def make_settings(kind: type[Config], *layers: Mapping[str, Any]) -> Config:
    """Check the settings of a command and fill in the defaults; later layers win.

    Raises:
        ConfigError: Names each unknown key and each bad value, what it must be and what it got.
    """
    merged = merge(*layers)
    try:
        return kind.model_validate(merged, context=merged)  # which says where plug-ins may be
    except ValidationError as error:
        problems = error.errors()
        # A bad value also spoils the defaults that depend on it; of those the user knows nothing.
        own = [problem for problem in problems if problem["loc"] and problem["loc"][0] in merged]
        raise ConfigError("\n".join(_explain(kind, merged, p) for p in own or problems)) from None


def _explain(
    kind: type[CommandConfig], given: Mapping[str, Any], problem: Mapping[str, Any]
) -> str:
    """Describe an error in one line: which setting, what it must be, and what it got."""
    place = [str(part) for part in problem["loc"]]
    key, section = ".".join(place), place[0] if place else ""
    of_kind = ""
    if (choice := CHOICES.get(section)) and len(place) > 1:
        of_kind = kind_of(merge(kind.defaults_for(given), given), section)
    if problem["type"] == "extra_forbidden":
        return _explain_unknown(kind, given, key, of_kind)
    if problem["type"] == "missing" and is_plugin(of_kind):
        return f"`{key}`: `{of_kind}` has no default for it, so it must be set"
    if choice and problem["type"] == UNKNOWN_KIND:
        return f"`{key}.{choice.tag}`: {problem['msg']}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message.removeprefix("Input ").replace("'", "`")
    subject = f"`{key}`: " if key else ""
    got = "" if isinstance(problem["input"], Mapping) else f"; it is {problem['input']!r:.300}"
    return f"{subject}{message}{got}"


def _explain_unknown(
    kind: type[CommandConfig], given: Mapping[str, Any], key: str, of_kind: str
) -> str:
    """Say that there is no such setting, or none of this kind, and what may have been meant."""
    names = setting_types(kind)
    section, _, own = key.partition(".")
    kinds = {}
    if of_kind:
        tag = CHOICES[section].tag
        for each in CHOICES[section].variants(given):
            kinds[each.model_fields[tag].default] = each.model_fields.keys() - {tag}
    if is_plugin(of_kind):
        has = ", ".join(f"`{section}.{name}`" for name in sorted(kinds[of_kind])) or "none"
        return f"there is no setting `{key}` of `{of_kind}`, which has {has}"
    if key in names:
        others = ", ".join(f"`{name}`" for name, fields in kinds.items() if own in fields)
        return f"`{key}` is not a setting of type `{of_kind}`, but of {others}"
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no setting `{key[:80]}`{hint}"


def setting_types(
    kind: type[CommandConfig], given: Mapping[str, Any] | None = None
) -> dict[str, set[Any]]:
    """Return the types of each setting, including those of plug-ins that settings name.

    `section.key` -> its types, without their parameters.
    """
    types: dict[str, set[Any]] = {}
    for name, field in kind.model_fields.items():
        sections = sections_of(field.annotation, given)
        if not sections:
            types[name] = plain_types(field.annotation)
        for section in sections:
            for key, own in section.model_fields.items():
                types.setdefault(f"{name}.{key}", set()).update(plain_types(own.annotation))
    return types


def sections_of(annotation: Any, given: Mapping[str, Any] | None = None) -> list[type[Section]]:
    """List the sections that a setting may be: one, or one for each kind; [] if it is none."""
    is_section = isinstance(annotation, type) and issubclass(annotation, Section)
    return annotation.variants(given) if is_section else []


def settings_help(kind: type[CommandConfig]) -> str:
    """List the settings of a command, by section."""
    sections: dict[str, list[str]] = {}
    for name in setting_types(kind):
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(key)
    lines = ["settings, as --section.key VALUE (all are described in docs/settings.md):"]
    for section, keys in sections.items():
        start = f"  --{section}." if section else ""
        names = keys if section else [f"--{key}" for key in keys]
        listed = textwrap.wrap(", ".join(names), 56, break_on_hyphens=False)
        lines += [f"{start:20}{listed[0]}", *(f"{'':20}{line}" for line in listed[1:])]
    return "\n".join(lines)
