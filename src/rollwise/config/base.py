"""What the settings of every command have in common, and how layers of them are merged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from annotated_types import Gt, Le

from rollwise.config.choices import CHOICES, EpisodeSection
from rollwise.config.sections import Section, settings_of


class CommandConfig(Section):
    """All settings of a command."""

    plugin_folder: str | None = None
    """Folder searched first for your own modules; default: the TOML file's, if it names any."""

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on other settings."""
        return {}


class SamplingConfig(CommandConfig):
    """Settings of the commands that draw responses and grade them."""

    stall_limit: Annotated[float, Gt(0), Le(1e8)] = 6 * 3600.0
    """Seconds without any response or reward after which the command ends with an error, since the
    engine or grader must have hung; raise it if a batch takes longer."""
    episode: EpisodeSection


def setting(given: Mapping[str, Any], section: str, key: str, default: Any) -> Any:
    """Look up a setting of a section in what was given."""
    values = given.get(section, {})
    return values.get(key, default) if isinstance(values, Mapping) else default


def kind_of(given: Mapping[str, Any], section: str) -> str:
    """Return the kind that settings choose for a section."""
    choice = CHOICES[section]
    return str(setting(given, section, choice.tag, choice.default))


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over each other, section by section; later layers win.

    If a layer names another kind for a section, settings that only the lower kind has are dropped.
    `base`, each method of `methods`, and `verl` hold sections themselves.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, upper in layer.items():
            lower = merged.get(name)
            if not isinstance(lower, Mapping) or not isinstance(upper, Mapping):
                merged[name] = upper
            elif name in CHOICES:
                merged[name] = {**_kept(name, lower, upper), **upper}
            else:
                merged[name] = merge(lower, upper)
    return merged


def _kept(name: str, lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Mapping[str, Any]:
    choice = CHOICES[name]
    kind = lower.get(choice.tag, choice.default)
    if (named := upper.get(choice.tag, kind)) == kind:
        return lower
    kept = {*settings_of(choice)}
    if choice.keeps_common and (of_kind := choice.kinds.get(str(named))):
        kept |= {*choice.fields_of(of_kind)}
    return {key: value for key, value in lower.items() if key in kept}


def nested(item: tuple[str, Any]) -> dict[str, Any]:
    """Turn ("a.b", 1) into {"a": {"b": 1}}."""
    *sections, key = item[0].split(".")
    layer: dict[str, Any] = {key: item[1]}
    for section in reversed(sections):
        layer = {section: layer}
    return layer


Rule = tuple[str, tuple[Any, ...], str]
"""The name of a setting, the values that it may have, and why it may have no other."""


def refusals(rules: Iterable[Rule], value_of: Callable[[str], Any]) -> list[str]:
    """List the settings that have another value: what each must be and why, and what it is."""
    return [
        f"`{name}` must be {' or '.join(map(_shown, allowed))}: {why}; it is {_shown(found)}"
        for name, allowed, why in rules
        if (found := value_of(name)) not in allowed
    ]


def _shown(value: Any) -> str:
    return "unset" if value is None else repr(value)
