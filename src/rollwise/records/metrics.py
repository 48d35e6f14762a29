"""Figures and settings as nested mappings: the lines of `metrics.jsonl`, and their flat names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from rollwise.errors import RunError

Row = dict[str, Any]


def metrics_line(metrics: Row) -> str:
    """Return a line of JSON; NaN and infinity, which JSON does not have, become null."""
    return to_json(metrics, inf_nan_mode="null").decode() + "\n"


def read_lines(path: Path) -> list[Row]:
    """Read a file that has a JSON object on each line; `RunError` names what is broken.

    A line without an end was being written when its command was killed, and is left out.
    """
    place, rows = f"cannot read {path}", list[Row]()
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
            place = f"{path}, line {number}, is broken"
            rows.append(json.loads(line))
            if not isinstance(rows[-1], dict):
                raise ValueError(f"it should be an object, and is {line[:80]}")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{place}: {error}") from None
    return rows


def flatten(values: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Flatten nested mappings: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{separator}{k}": v for k, v in flatten(value, separator).items()}
        else:
            flat[f"{key}"] = value
    return flat


def numbers(figures: Mapping[Any, Any]) -> dict[str, float]:
    """Return the numbers among nested figures by their paths; parts of a list by places, from 1."""
    found: dict[str, float] = {}
    for name, value in figures.items():
        parts: Any = dict(enumerate(value, start=1)) if isinstance(value, list) else value
        if isinstance(parts, Mapping):
            found |= {f"{name}/{k}": v for k, v in numbers(parts).items()}
        elif isinstance(parts, int | float):
            found[f"{name}"] = float(parts)
    return found
