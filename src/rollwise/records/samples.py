"""What a run keeps of its steps, in files of a bounded size: each is full, or the newest."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rollwise.errors import RunError
from rollwise.files import written_whole
from rollwise.records.metrics import Row

ROWS = 1024
"""A file with at least this many responses is full."""


class StepFiles:
    """Rows of the steps of a run, in the files `part-00000.parquet` and so on of a folder.

    Adding rows takes memory and time only for the newest file, however long the run is. A file with
    at least `rows` rows is full; at most that many are kept in memory. A file that is broken, or
    cannot be written, raises a `RunError`.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self._kept: list[Row] = []

    @property
    def paths(self) -> list[Path]:
        """The files, in the order of the steps."""
        return sorted(self.folder.glob("part-*.parquet"), key=_number)

    @property
    def missing(self) -> list[str]:
        """The names of files that must have existed, because there are later ones."""
        there = {path.name for path in self.paths}
        count = _number(self.paths[-1]) if there else 0
        return [name for name in map(_name, range(count)) if name not in there]

    def keep(self, rows: Iterable[Row]) -> None:
        """Add rows, each with a `step`; a full file is written."""
        self._kept.extend(rows)
        if len(self._kept) >= self.rows:
            self.flush()

    def flush(self) -> None:
        """Write what is kept into the newest file, or into another if that is full."""
        if not self._kept:
            return
        table = _with_numbers(pa.Table.from_pylist(self._kept))
        number = 0
        for newest in self.paths[-1:]:
            before = read_part(newest)
            number = _number(newest) + (before.num_rows >= self.rows)
            if before.num_rows < self.rows:
                table = pa.concat_tables([before, table], promote_options="default")
        write_part(self.folder / _name(number), table)
        self._kept.clear()

    def read(self, newest: int | None = None) -> Any:
        """Read what is written, or at least this many of the newest rows, as an Arrow table."""
        tables: list[Any] = []
        for path in reversed(self.paths):
            tables.insert(0, read_part(path))
            if newest is not None and sum(map(len, tables)) >= newest:
                break
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def count(self) -> int:
        """Count the rows that are written."""
        try:
            return sum(pq.read_metadata(path).num_rows for path in self.paths)
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"cannot read the rows in {self.folder}: {error}") from None

    def discard_after(self, step: int) -> None:
        """Remove the rows of later steps, and what was left half written."""
        for path in self.folder.glob(".part-*.partial"):
            path.unlink()
        for path in reversed(self.paths):
            table = read_part(path)
            if "step" not in table.column_names:
                raise RunError(f"{path} has no column `step`: it is not a run's")
            left = table.filter(pc.field("step") <= step)
            if left.num_rows == table.num_rows > 0:
                return
            if left.num_rows:
                write_part(path, left)
            else:
                path.unlink()


def _name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("part-")
    return int(digits) if digits.isdigit() else -1


def _with_numbers(table: Any) -> Any:
    """Turn empty columns, such as advantages where no group teaches, into columns of numbers.

    So the files have the same columns, and `pyarrow.parquet.read_table` reads the whole folder.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            numbers = table.column(place).cast(pa.float64())
            table = table.set_column(place, field.name, numbers)
    return table


def write_part(path: Path, table: Any) -> None:
    """Write an Arrow table to a file, with checksums of its pages."""
    with written_whole(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)


def read_part(
    path: Path, columns: Sequence[str] | None = None, remedy: str = "continue without them"
) -> Any:
    """Read columns of a file, by default all; a `RunError` if it is broken, with the `remedy`."""
    try:
        checked: dict[str, Any] = {"partitioning": None, "page_checksum_verification": True}
        table = pq.read_table(path, columns=columns and list(columns), **checked)
        table.schema.names  # invalid UTF-8 is found only when it is decoded  # noqa: B018
        table.validate(full=True)
        return table
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise RunError(f"cannot read the rows in {path}: {error}; remove it to {remedy}") from None
