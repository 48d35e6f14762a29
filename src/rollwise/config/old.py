"""Old names of settings, which keep working for this release."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rollwise.config.base import setting
from rollwise.config.choices import CHOICES
from rollwise.grading import GRADERS

TABLES = {"vllm": "engine", "server": "engine", "tinker": "backend"}
"""Former tables, and the sections whose kinds they are now."""

_GRADING = {"function": "", "chat": False, "convention": "math_verify", "uncontained": False}
"""What earlier releases recorded in every section `grading`, whatever its type."""


class OldSetting(DeprecationWarning):
    """A setting is given by its old name."""


def old_names(table: str) -> set[str]:
    """List the settings that an old table had."""
    return _fields(CHOICES[TABLES[table]].registry[table])


def given_by_old_names(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Gather the options by old names, `--table.name`, that a command line has."""
    return {
        table: given
        for table in TABLES
        if (
            given := {
                name: value
                for name in sorted(old_names(table))
                if (value := options.get(f"{table}.{name}")) is not None
            }
        )
    }


def with_new_names(layers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Move settings with old names to their new places.

    A table `[vllm]` goes into `[engine]` if that engine is chosen; otherwise it had no effect, and
    is left out.
    """
    chosen = {name: _last(layers, name, choice.tag) for name, choice in CHOICES.items()}
    return [_renamed(layer, chosen) for layer in layers]


def _last(layers: Sequence[Mapping[str, Any]], section: str, tag: str) -> Any:
    """Return the kind of a section that the layers name last."""
    named = [setting(layer, section, tag, None) for layer in layers]
    return next((kind for kind in reversed(named) if kind is not None), None)


def _renamed(layer: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {name: value for name, value in layer.items() if name not in TABLES}
    for kind, section in TABLES.items():
        own, now = layer.get(kind), renamed.get(section, {})
        if own is None or chosen[section] != kind or not isinstance(now, Mapping):
            continue
        if not isinstance(own, Mapping):
            renamed[kind] = own  # an error, as any other bad value
            continue
        renamed[section] = {**own, **now}
        message = f"the table [{kind}] is now part of [{section}]: write its settings there"
        warnings.warn(message, OldSetting, stacklevel=2)
    if isinstance(grading := renamed.get("grading"), Mapping):
        known = _fields(GRADERS.get(str(grading.get("type", ""))))
        renamed["grading"] = {
            name: value
            for name, value in grading.items()
            if name in known or "type" not in grading or _GRADING.get(name, ...) != value
        }
    return renamed


def _fields(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)} if kind else set()
