"""What the settings of every command have in common, and how layers of them are merged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ConfigDict, Field, SerializeAsAny, model_validator

from rollwise.config.choices import CHOICES, EpisodeSection
from rollwise.config.sections import Settings, chosen


class CommandConfig(Settings):
    """All settings of a command."""

    model_config = ConfigDict(validate_default=True)

    plugin_folder: str | None = None
    """Look for your own modules here before the current folder; by default in the folder of the
    TOML file, if it names any."""

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that depend on other settings."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: dict[str, Any]) -> dict[str, Any]:
        return merge(cls.defaults_for(given), given)


class SamplingConfig(CommandConfig):
    """Settings of the commands that draw responses and grade them."""

    stall_limit: float = Field(6 * 3600.0, gt=0, le=1e8)
    """End with an error after this many seconds without a response or a reward, because the engine
    or the grader hangs; the command can be resumed. Raise it if a batch may take longer."""
    episode: SerializeAsAny[EpisodeSection] = chosen()


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
    kept = choice.kept_for(str(named))
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
    """Say what each setting that has another value must be, why, and what it is."""
    return [
        f"`{name}` must be {' or '.join(map(_shown, allowed))}: {why}; it is {_shown(found)}"
        for name, allowed, why in rules
        if (found := value_of(name)) not in allowed
    ]


def _shown(value: Any) -> str:
    return "unset" if value is None else repr(value)
