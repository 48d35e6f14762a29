"""Settings on the command line: `--section.key VALUE`, `--section.key=VALUE`, `--section JSON`."""

import json
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from types import NoneType
from typing import Any

from rollwise.config.base import CommandConfig, merge, nested
from rollwise.config.choices import CHOICES
from rollwise.config.reading import sections_of, setting_types, with_plugins
from rollwise.errors import ConfigError

Given = list[tuple[str, str]]
"""Settings and their texts, in the order of the command line."""


def split_settings(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], Given]:
    """Take the settings out of the words of a command line.

    Args:
        words: Those after the command's name.
        options: The command's other options, and whether each takes a value.

    Returns:
        The other words, and the settings.

    Raises:
        ConfigError: A setting has no value.
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
        name = option.removeprefix("--")
        if not equals:
            value = next(rest, "--")
            if value == "--" or value.partition("=")[0] in options:
                raise ConfigError(f"`--{name}` needs a value")
        given.append((name, value))
    return others, given


def read_given(kind: type[CommandConfig], given: Given, below: Mapping[str, Any]) -> dict[str, Any]:
    """Read the texts of settings as values.

    Args:
        kind: The settings of the command.
        given: What the command line gives.
        below: The settings of the file, which may name plug-ins.

    Raises:
        ConfigError: A list or a table cannot be read, or a plug-in is not found.
    """
    texts: dict[str, list[str]] = {}
    for name, text in given:
        texts.setdefault(name, []).append(text)
    plain = (nested((name, told[-1])) for name, told in texts.items() if name not in CHOICES)
    types = setting_types(with_plugins(kind, reduce(merge, plain, dict(below)))) | {
        name: {dict} for name, field in kind.model_fields.items() if sections_of(field.annotation)
    }
    values = (nested((name, _value(name, told, types))) for name, told in texts.items())
    return reduce(merge, values, {})


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


def _value(name: str, texts: Sequence[str], types: Mapping[str, set[Any]]) -> Any:
    """Read a setting, which was given once or more often: a list takes all, others the last."""
    text, wanted = texts[-1], types.get(name, {Any})
    if text == "none" and NoneType in wanted:
        return None
    if list in wanted:
        return [member for text in texts for member in _members(name, text)]
    if dict in wanted:
        return _structure(name, text, dict)
    if wanted & {int, float, bool, Any} and str not in wanted:
        return _parsed(text)
    return text


def _members(name: str, text: str) -> list[Any]:
    if text.startswith("["):
        return list(_structure(name, text, list))
    return text.split(",") if text else []


def _structure(name: str, text: str, kind: type) -> Any:
    value = _parsed(text)
    if isinstance(value, kind):
        return value
    raise ConfigError(
        f"`{name}`: on the command line a list is written as a,b and a table as JSON, such as "
        f"'{{\"count\": 4}}'; it is {text!r}"
    )


def _parsed(text: str) -> Any:
    """Read a value in TOML, or else in JSON; a text that is neither stays as it is."""
    try:
        [value] = tomllib.loads(f"value = {text}").values()
        return value
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
