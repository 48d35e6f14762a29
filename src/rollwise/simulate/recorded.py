"""Recorded rewards: the responses that were drawn to each prompt, without the model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.engines.recorded import Recorded
from rollwise.errors import DataError
from rollwise.simulate.pass_rates import RatedPrompt
from rollwise.tasks.readers import level_of
from rollwise.tasks.tables import Row, Table, read_table

WANTED = {"key", "level", "rewards", "lengths", "reward", "tokens"}
"""Columns that are read."""


@dataclass(frozen=True)
class RecordedPrompt:
    """A prompt, and what was drawn to it.

    Attributes:
        key: Names it.
        recorded: Its responses, in the order in which they were drawn.
        level: Its labelled difficulty, if there is one.
    """

    key: str
    recorded: Recorded
    level: int | None = None


def rated(prompt: RecordedPrompt, threshold: float) -> RatedPrompt:
    """Return a prompt with its measured pass rate: a reward above `threshold` is correct."""
    correct = prompt.recorded.correct(threshold)
    measured = float(correct.sum()), float(len(correct))
    return RatedPrompt(prompt.key, float(correct.mean()), prompt.level, measured)


def read_recorded(path: str | Path) -> list[RecordedPrompt]:
    """Read the rewards of responses, and their lengths in tokens if they are there.

    Args:
        path: The folder of `rollwise prepare` (the problems that it chose), or of a run; a parquet
            or JSON Lines file with a row for each prompt (`rewards`, a list; `lengths`, a list of
            as many numbers of tokens, `key` and `level` where it has them) or for each response
            (`key`, `reward`, and `tokens` where it has it).

    Raises:
        DataError: It cannot be read, or holds none of these; the place and the value are named.
    """
    found = Path(path).expanduser()
    if not found.exists():
        raise DataError(
            f"no such file: {found}"
            + ("" if found.is_absolute() else f" (the current folder is {Path.cwd()})")
        )
    if found.is_dir():
        return _read_folder(found)
    return _of_table(_table(found))


def _table(path: Path) -> Table:
    return read_table(path, "", None, WANTED)


def _of_table(table: Table) -> list[RecordedPrompt]:
    """Read a table of prompts, or of responses."""
    if "rewards" in table.columns:
        return _checked(table.name, [_of_row(row, i) for i, row in enumerate(table.rows)])
    if not {"key", "reward"} <= set(table.columns):
        held = ", ".join(table.columns) or "none"
        raise DataError(
            f"{table.name}: it needs a column `rewards` with a list for each prompt, or columns "
            f"`key` and `reward` with a row for each response; its columns are {held}"
        )
    return _of_responses(table.name, table.rows)


def _of_row(row: Row, number: int) -> RecordedPrompt:
    rewards = _numbers(row, "rewards", row.cells.get("rewards"))
    given = row.cells.get("lengths")
    tokens = [] if given is None else _numbers(row, "lengths", given, _count)
    key = row.text("key") or f"row {number}"
    return RecordedPrompt(key, _recorded(row, rewards, tokens), level_of(row))


def _of_responses(name: str, rows: Iterable[Row]) -> list[RecordedPrompt]:
    of_prompts: dict[str, list[Row]] = {}
    for row in rows:
        of_prompts.setdefault(row.text("key"), []).append(row)
    found = []
    for key, own in of_prompts.items():
        rewards = [_number(row, "reward", row.cells.get("reward")) for row in own]
        given = [row.cells.get("tokens") for row in own]
        tokens = [
            _count(row, "tokens", count)
            for row, count in zip(own, given, strict=True)
            if count is not None
        ]
        recorded = _recorded(own[0], rewards, tokens)
        found.append(RecordedPrompt(key, recorded, level_of(own[0])))
    return _checked(name, found)


def _recorded(row: Row, rewards: Sequence[float], tokens: Sequence[float]) -> Recorded:
    try:
        return Recorded(np.array(rewards, dtype=float), np.array(tokens).astype(np.int64))
    except ValueError as error:
        raise DataError(f"{row.place}: {error}") from None


def _number(row: Row, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise row.error(f"`{name}` must be a number", value)
    return float(value)


def _count(row: Row, name: str, value: Any) -> float:
    number = _number(row, name, value)
    if not number.is_integer() or abs(number) > 2**53:
        raise row.error(f"`{name}` must be a whole number of tokens", value)
    return number


def _numbers(
    row: Row, name: str, value: Any, read: Callable[[Row, str, Any], float] = _number
) -> list[float]:
    if not isinstance(value, list):
        raise row.error(f"`{name}` must be a list of numbers", value)
    return [read(row, name, each) for each in value]


def _read_folder(folder: Path) -> list[RecordedPrompt]:
    """Read a folder of `rollwise prepare`, of its responses, or of a run."""
    parts = sorted(folder.glob("part-*.parquet")) or sorted(folder.glob("responses/part-*.parquet"))
    if parts:
        rows = [row for part in parts for row in _table(part).rows]
        found = _of_responses(str(folder), rows)
        chosen = folder / "prepared.parquet"
        if not chosen.exists():
            return found
        levels = {row.text("key"): level_of(row) for row in _table(chosen).rows}
        return [
            RecordedPrompt(prompt.key, prompt.recorded, levels[prompt.key])
            for prompt in found
            if prompt.key in levels
        ]
    if tables := [_table(file) for file in sorted(folder.glob("samples/part-*.parquet"))]:
        columns = list(dict.fromkeys(name for table in tables for name in table.columns))
        rows = [row for table in tables for row in table.rows]
        return _of_table(Table(str(folder / "samples"), columns, rows))
    raise DataError(
        f"{folder}: it is neither the folder of `rollwise prepare`, with its responses, nor of a "
        "run with samples"
    )


def _checked(name: str, prompts: list[RecordedPrompt]) -> list[RecordedPrompt]:
    """Check that there are prompts, each once, all with or all without lengths."""
    if not prompts:
        raise DataError(f"{name} has no rows")
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.key in seen:
            raise DataError(f"{name}: the key {prompt.key!r} is there twice")
        seen.add(prompt.key)
    if len({bool(len(prompt.recorded.tokens)) for prompt in prompts}) > 1:
        raise DataError(f"{name}: some prompts have lengths, others have none")
    return prompts
