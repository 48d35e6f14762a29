"""The lines of `metrics.jsonl`: how they are written and read."""

import json
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from rollwise.errors import RunError

Row = dict[str, Any]


def metrics_line(metrics: Row) -> str:
    """Write a line; NaN and infinity, which JSON does not have, become null."""
    return to_json(metrics, inf_nan_mode="null").decode() + "\n"


def read_lines(path: Path) -> list[Row]:
    """Read a file that has a JSON object on each line; `RunError` names what is broken.

    A line without an end was being written when its command was killed, and is left out.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}") from None
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _parsed(line: str, place: str) -> Row:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place}, is broken: {error}") from None
    if not isinstance(row, dict):
        raise RunError(f"{place}, is broken: it should be an object, and is {line[:80]}")
    return row
