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
        return sorted(self.folder.glob(f"part-{5 * '[0-9]'}.parquet"))

    def keep(self, rows: Iterable[Row]) -> None:
        """Add rows, each with a `step`; a full file is written."""
        self._kept.extend(rows)
        if len(self._kept) >= self.rows:
            self.flush()

    def flush(self) -> None:
        """Write what is kept into the newest file, or into another if that is full."""
        if not self._kept:
            return
        names = dict.fromkeys(name for row in self._kept for name in row)
        rows = [{name: row.get(name) for name in names} for row in self._kept]
        table, number = _with_numbers(pa.Table.from_pylist(rows)), 0
        for newest in self.paths[-1:]:
            before, number = read_part(newest), int(newest.stem[-5:])
            if len(before) < self.rows:
                table = pa.concat_tables([before, table], promote_options="default")
            else:
                number += 1
        write_part(self.folder / f"part-{number:05d}.parquet", table)
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
        return sum(len(read_part(path, ["step"])) for path in self.paths)

    def discard_after(self, step: int) -> None:
        """Remove the rows of later steps."""
        for path in reversed(self.paths):
            steps = read_part(path, ["step"])["step"]
            kept = pc.less_equal(steps, step)
            if pc.all(kept).as_py():
                return
            if pc.any(kept).as_py():
                write_part(path, read_part(path).filter(kept))
            else:
                path.unlink()


def _with_numbers(table: Any) -> Any:
    """Turn empty columns, such as advantages where no group teaches, into columns of numbers.

    So the files have the same columns, and `pyarrow.parquet.read_table` reads the whole folder.
    """
    fields = [f.with_type(pa.float64()) if pa.types.is_null(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


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
        for name in columns or ():
            table[name]  # a KeyError if it is missing
        table.schema.names  # invalid UTF-8 is found only when it is decoded  # noqa: B018
        table.validate(full=True)
        return table
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise RunError(f"cannot read the rows in {path}: {error}; remove it to {remedy}") from None
