"""The lines of `metrics.jsonl`: how they are written, read, and checked against a checkpoint."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.errors import RunError

Row = dict[str, Any]


def metrics_line(metrics: Row) -> str:
    """Write a line; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(metrics), allow_nan=False) + "\n"


def read_lines(path: Path) -> list[Row]:
    """Read a file that has a JSON object on each line; `RunError` names what is broken."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}") from None
    return [parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def parse_line(line: str, place: str) -> Row:
    """Read a line; `RunError` says that the line at this `place` is broken."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place}, is broken: {error}") from None
    if not isinstance(row, dict):
        raise RunError(f"{place}, is broken: it should be an object, and is {line[:80]}")
    return row


def missing_steps(found: Sequence[int], last: int) -> str:
    """Say which steps from 0 to `last` are missing or there twice; "" if each is there once."""
    counts = Counter(found)
    if sorted(found) == list(range(last + 1)) != list(found):
        return "its lines are not in order"
    spans: list[list[int]] = []
    for step in (step for step in range(last + 1) if counts[step] != 1):
        if spans and spans[-1][1] == step - 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    shown = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)
    return f"missing or more than once: steps {shown}" if spans else ""


def changed_steps(found: Sequence[Row], saved: Sequence[Row]) -> str:
    """Say which lines are not as in a checkpoint; an evaluation may have been made since."""
    changed = [row["step"] for row, own in zip(found, saved, strict=False) if row != own]
    if changed == [found[-1]["step"]] and "heldout" in found[-1] and "heldout" not in saved[-1]:
        return ""
    return f"changed since: steps {', '.join(map(str, changed))}" if changed else ""


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
