"""Reading settings from files and the command line, and reporting errors in them."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from rollwise.config.base import CommandConfig, merge, nested, setting
from rollwise.config.choices import CHOICES
from rollwise.config.sections import Section, Setting, settings_of
from rollwise.config.train import TrainConfig
from rollwise.config.variants import Variant
from rollwise.errors import ConfigError
from rollwise.methods import METHODS
from rollwise.plugins import is_plugin
from rollwise.sampling.checks import plain_types

Config = TypeVar("Config", bound=CommandConfig)

ALIKE = ({"data.train", "data.sources", "benchmarks"}, {"data.heldout", "benchmarks"})
"""Settings that mean the same in different commands, and have different names there."""


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
        several = setting(run, "grading", "functions", {})
        named = [*several.values()] if isinstance(several, Mapping) else []
        if own or any(map(is_plugin, [*named, setting(run, "grading", "function", "")])):
            given.setdefault("plugin_folder", str(path.parent.absolute()))
    return given


def read_given(
    kind: type[CommandConfig], given: Sequence[tuple[str, str]], below: Mapping[str, Any]
) -> dict[str, Any]:
    """Read settings and their texts on the command line; the file, `below`, may name plug-ins."""
    plain = (nested((name, text)) for name, text in given if name not in CHOICES)
    types = setting_types(kind, merge(below, *plain))
    values, lists = list[dict[str, Any]](), dict[str, list[Any]]()
    for name, text in given:
        value = _value(name, text, types.get(name, {Any}))
        if isinstance(value, list):  # one that is given several times takes all
            value = lists[name] = lists.get(name, []) + value
        values.append(nested((name, value)))
    return merge(*values)


def _value(name: str, text: str, wanted: set[Any]) -> Any:
    """Read a text by the types that its setting may have: in TOML, or else in JSON."""
    if name == "methods" and not text.startswith(("{", "[")):
        return _by_name(text.split(","))
    if text == "none" and NoneType in wanted:
        return None
    if list in wanted and not text.startswith("["):
        return text.split(",") if text else []
    value: Any = text
    for read in () if str in wanted else (json.loads, _toml_value):
        with suppress(ValueError, RecursionError):
            value = read(text)
    if wanted & {list, dict} and not isinstance(value, list | dict):
        raise ConfigError(
            f"`{name}`: on the command line a list is written as a,b and a table as JSON, such as "
            f"'{{\"count\": 4}}'; it is {text!r}"
        )
    return value


def _toml_value(text: str) -> Any:
    return tomllib.loads(f"value = {text}").popitem()[1]


def _by_name(methods: Any) -> Any:
    """Return the tables of methods that are listed by their names."""
    return {str(n): {"method": n} for n in methods} if isinstance(methods, list) else methods


def make_config(*layers: Mapping[str, Any]) -> TrainConfig:
    """Do what `make_settings` does, for `rollwise train`."""
    return make_settings(TrainConfig, *layers)


def make_settings(kind: type[Config], *layers: Mapping[str, Any]) -> Config:
    """Check the settings of a command and fill in the defaults; later layers win.

    A `ConfigError` names each unknown key and each bad value, what it must be and what it got.
    """
    given = merge(
        *({n: _by_name(v) if n == "methods" else v for n, v in layer.items()} for layer in layers)
    )
    wrong = dict[str, str]()
    try:
        table = merge(kind.defaults_for(given), given)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    made: Config = _made(kind, kind, "", table, given.get("plugin_folder"), wrong)
    # A bad value also spoils the defaults that depend on it; of those the user knows nothing.
    own = [text for name, text in wrong.items() if name.partition(".")[0] in given]
    if wrong:
        raise ConfigError("\n".join(own or wrong.values()))
    return made


def _made(
    command: type[CommandConfig], section: Any, name: str, table: Any, folder: Any, wrong: Any
) -> Any:
    """Make a section, or all, of a table; None if something is `wrong`: sentences, by settings."""
    before, values, kind, start = len(wrong), dict[str, Any](), "", f"{name}." if name else ""
    if not isinstance(table, Mapping):
        wrong[name] = _instead_of(section, name, table)
        return None
    if issubclass(section, Variant):
        kind = table.get(section.tag, section.default)
        if not is_plugin(kind) and (not isinstance(kind, str) or kind not in section.kinds):
            wrong[name] = _unknown_kind(section, kind)
            return None
        section = section.of(kind, folder)
    known = settings_of(section)
    for key in table.keys() - known:
        inner = table[key] if not name and isinstance(table[key], Mapping) else ()
        names = [f"{key}.{each}" for each in inner] or [f"{start}{key}"]
        wrong[f"{start}{key}"] = "\n".join(_unknown(command, section, kind, n) for n in names)
    for key, each in known.items():
        if each.section:
            values[key] = _made(command, each.section, key, table.get(key, {}), folder, wrong)
        elif key in table or (is_plugin(kind) and each.default is not MISSING):
            values[key] = each.read(f"{start}{key}", table.get(key, each.default), wrong)
        elif each.default is MISSING:
            due = f"`{kind}` has no default for it, so it must be set"
            wrong[f"{start}{key}"] = f"`{start}{key}`: {due}"
    try:
        return section(**values) if len(wrong) == before else None
    except ValueError as error:
        wrong[name] = f"{name and f'`{name}`: '}{error}".replace("'", "`")


def _instead_of(section: type[Section], name: str, value: Any) -> str:
    """Name the setting that may be meant where a section itself is given a value."""
    first = getattr(section, "tag", next(iter(settings_of(section))))
    meant = section.meant or f"{name}.{first}"
    given = json.dumps(value) if isinstance(value, str | int | float) else "..."
    typed = value if isinstance(value, str) else given
    return (
        f"`{name}` is a section: give `--{meant} {typed:.80}`, or in TOML `{meant} = {given:.80}`"
    )


def _unknown_kind(section: type[Variant], named: Any) -> str:
    """Explain that a section has no kind of this name, and what may be meant."""
    kinds, text = ", ".join(f"`{n}`" for n in section.kinds), str(named)
    of = " or ".join(f"`{c.section}.{c.tag}`" for c in CHOICES.values() if text in c.kinds)
    near = [f'method = "{text}"'] if text in METHODS else []
    near = near or difflib.get_close_matches(text, section.kinds, n=1)
    more = did_you_mean(near) or (of and f", which is for {of}")
    return (
        f"`{section.section}.{section.tag}` must be one of {kinds}, or `module:Class` of your own; "
        f"it is {named!r:.300}{more}"
    )


def _unknown(command: type[CommandConfig], section: Any, kind: str, name: str) -> str:
    """Explain that there is no such setting, or none of this kind, and what may be meant."""
    names, (table, _, key) = setting_types(command), name.partition(".")
    if is_plugin(kind):
        known = settings_of(section).keys() - {section.tag}
        has = ", ".join(f"`{table}.{each}`" for each in sorted(known)) or "none"
        return f"there is no setting `{name}` of `{kind}`, which has {has}"
    if kind and name in names:
        kinds = (each for each in section.kinds if key in settings_of(section.of(each)))
        others = ", ".join(f"`{each}`" for each in kinds)
        return f"`{name}` is not a setting of `{table}.{section.tag}` = `{kind}`, but of {others}"
    return unknown_setting(name, names)


def unknown_setting(name: str, names: Iterable[str]) -> str:
    """Explain that there is no setting of this name, and which of `names` may be meant."""
    known, of_train = {*names}, name in setting_types(TrainConfig)
    near = [other for alike in ALIKE if name in alike for other in sorted(alike & known)]
    if not near:
        near = [f"base.{name}"] if of_train and "base" in known else nearest(name, names)
    only = "; only `rollwise train` has it" if of_train and not near else ""
    return f"there is no setting `{name[:80]}`{did_you_mean(near)}{only}"


def check_option(kind: type[CommandConfig], option: str, others: Iterable[str]) -> None:
    """Refuse an option of the command line that is no setting, unless it has a section."""
    name = option.removeprefix("--")
    if "." not in name and name not in settings_of(kind):
        known = [*others, *(f"--{known}" for known in setting_types(kind))]
        near = did_you_mean(nearest(option, known))
        raise ConfigError(f"there is no option `{option[:80]}`{near}")


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the names, at most three, that may have been meant by a wrong one.

    Those are a name that is spelled nearly alike, or else names whose last part is the same, has
    these initials (`lr`), begins so, or is spelled nearly alike; of the same section if there are.
    """
    known = {each.lstrip("-"): each for each in names}
    name = name.lstrip("-").replace("-", "_")
    section, _, own = name.rpartition(".")
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if not found:
        ends = {each: each.rpartition(".")[2] for each in known}
        like = {own, *difflib.get_close_matches(own, ends.values(), n=3, cutoff=0.75)}
        like |= {end for end in ends.values() if len(own) > 3 and end.startswith(own)}
        like |= {end for end in ends.values() if own == "".join(w[:1] for w in end.split("_"))}
        found = [each for each, end in ends.items() if end in like]
    same = [each for each in found if each.startswith(f"{section}.")]
    return [known[each] for each in (same or found)[:3]]


def did_you_mean(near: Iterable[str]) -> str:
    """Return the question that ends an error; "" if nothing is near."""
    names = " or ".join(f"`{name}`" for name in near)
    return f"; did you mean {names}?" if names else ""


def setting_types(
    kind: type[CommandConfig], given: Mapping[str, Any] | None = None
) -> dict[str, set[Any]]:
    """Return the types of each setting, without their parameters; also of named plug-ins."""
    types: dict[str, set[Any]] = {}
    for name, each, _ in declared(kind, given):
        types.setdefault(name, set()).update(plain_types(each.hint))
    return types


def declared(
    kind: type[CommandConfig], given: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Setting, type[Section] | None]]:
    """Yield name, declaration and section of each setting, once for each kind of the section."""
    for name, each in settings_of(kind).items():
        if not each.section:
            yield name, each, None
        for section in sections_of(each, given):
            for key, own in settings_of(section).items():
                yield f"{name}.{key}", own, section


def sections_of(each: Setting, given: Mapping[str, Any] | None = None) -> list[type[Section]]:
    """List the sections that a setting may be: one, or one for each kind; [] if it is none.

    The kinds are the built-in ones, and the plug-in that `given` settings name.
    """
    section = each.section
    if section is None or not issubclass(section, Variant):
        return [section] if section else []
    plugin, folder = section.plugin(given or {}), (given or {}).get("plugin_folder")
    return [section.of(k, folder) for k in (*section.kinds, *([plugin] if plugin else ()))]
