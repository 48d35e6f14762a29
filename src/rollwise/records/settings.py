"""Recorded settings, compared with those that a run is resumed with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollwise.errors import ConfigError


def refuse_changes(
    path: Path, before: Mapping[str, Any], now: Mapping[str, Any], changeable: tuple[str, ...]
) -> None:
    """Refuse to resume in the folder `path` with other settings than those recorded there.

    Settings whose names begin with one of `changeable` may differ.
    """
    old, new = flatten(before, "."), flatten(now, ".")
    for key in new | old:
        if new.get(key) != old.get(key) and not key.startswith(changeable):
            raise ConfigError(
                f"`{key}` cannot change when a run is resumed: the run in {path} has "
                f"{old.get(key)!r}, given was {new.get(key)!r}; for another run, give another "
                "--output"
            )


def flatten(values: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, separator, f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def numbers(figures: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Name the numbers among nested figures by their paths; parts of a list by places, from 1."""
    found: dict[str, float] = {}
    for name, value in figures.items():
        parts: Any = dict(enumerate(value, start=1)) if isinstance(value, list) else value
        if isinstance(parts, Mapping):
            found |= numbers(parts, f"{prefix}{name}/")
        elif isinstance(parts, int | float):
            found[f"{prefix}{name}"] = float(parts)
    return found
