"""Rows of a parquet file, a JSON Lines file or a data set on the hub."""

import json
import os
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rollwise.errors import DataError, half_of_a_pair, one_line

FILE_SUFFIXES = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True)
class Row:
    """A row's cells, and the place that an error names."""

    place: str
    cells: dict[str, Any]

    def text(self, column: str) -> str:
        """Return the text or number in a cell as text; "" if it is empty.

        Raises:
            DataError: It is something else.
        """
        return self.as_text(column, self.cells.get(column))

    def as_text(self, name: str, value: Any) -> str:
        """Return a value as text, as `text` does for a cell; `name` is for the error."""
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if value is None or (is_number and value != value):  # a missing number is written as NaN
            return ""
        if is_number or isinstance(value, str):
            return str(value)
        raise self.error(f"`{name}` must be text or a number", value)

    def answer(self, name: str, value: Any) -> str:
        """Return an answer as text; it may be the one item of a list, as in OlympiadBench.

        Raises:
            DataError: It is something else.
        """
        if isinstance(value, list) and len(value) != 1:
            raise self.error(f"`{name}` must be one answer", value)
        return self.as_text(name, value[0] if isinstance(value, list) else value)

    def note(self, column: str) -> str:
        """Return the text in a cell; "" if there is none or it is something else."""
        value = self.cells.get(column)
        return value if isinstance(value, str) else ""

    def error(self, must: str, value: Any) -> DataError:
        """Make an error that names the place, what must be there, and what is."""
        shown = textwrap.shorten(repr(value), 80, placeholder=" ...")
        return DataError(f"{self.place}: {must}, got {type(value).__name__}: {shown}")


@dataclass(frozen=True)
class Table:
    """The columns and rows of a source; only wanted columns are in its rows."""

    name: str
    columns: list[str]
    rows: Iterable[Row]


def is_path(source: str | Path) -> bool:
    """Whether a source is a file, existing or not, rather than a data set on the hub."""
    path = Path(source).expanduser()
    begins_as_path = isinstance(source, Path) or source.startswith((".", "/", "~"))
    return begins_as_path or path.suffix.lower() in FILE_SUFFIXES or os.path.exists(path)


def read_table(source: str | Path, split: str, subset: str | None, wanted: set[str]) -> Table:
    """Read the `wanted` columns of a file, or else of a data set on the hub; see `read_problems`.

    Raises:
        DataError: It is not there, or cannot be read.
    """
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if not is_path(source):
        return _read_hub(str(source), split, subset, wanted)
    if not os.path.exists(path):  # which takes any name
        raise DataError(f"no such file: {path}")
    if suffix not in FILE_SUFFIXES:
        raise DataError(f"{path}: must be a file that ends in {', '.join(FILE_SUFFIXES)}")
    return _read_parquet(path, wanted) if suffix == ".parquet" else _read_json_lines(path)


def _read_parquet(path: Path, wanted: set[str]) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            columns = list(file.schema_arrow.names)
            if twice := sorted({name for name in columns if columns.count(name) > 1}):
                raise DataError(f"{path}: there are two columns named {twice[0]!r}")
            kept = [name for name in columns if name in wanted]
            rows = file.read(columns=kept).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet: {one_line(error)}") from error
    return Table(str(path), columns, _number_rows(str(path), rows))


def _read_json_lines(path: Path) -> Table:
    try:
        with path.open("rb") as file:  # bytes: a wrong encoding is an error of its line
            lines = [(i, line) for i, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    rows = [_read_line(f"{path}, line {i}", line) for i, line in lines]
    columns = dict.fromkeys(column for row in rows for column in row.cells)
    return Table(str(path), list(columns), rows)


def _read_line(place: str, line: bytes) -> Row:
    try:
        cells = json.loads(line)
        half = half_of_a_pair(json.dumps(cells, ensure_ascii=False)) if b"\\u" in line else ""
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: broken JSON: {one_line(error)}") from error
    if not isinstance(cells, dict):
        raise DataError(f"{place}: must be a JSON object, got {type(cells).__name__}")
    if half:
        raise DataError(f"{place}: {half} is half of a surrogate pair, which is not a character")
    return Row(place, cells)


def _read_hub(name: str, split: str, subset: str | None, wanted: set[str]) -> Table:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{name!r} is not a local file, and a data set on the hub is read with the library "
            'datasets: pip install "rollwise[hub]"'
        ) from error
    try:
        dataset = datasets.load_dataset(name, **({"name": subset} if subset else {}), split=split)
    except Exception as error:  # the library's errors (network, cache, splits) share no type
        raise DataError(
            f"the data set {name!r} (split {split!r}) could not be loaded from the hub: "
            f"{one_line(error)}; a local parquet or JSON Lines file can be given instead"
        ) from error
    columns = list(dataset.column_names)
    rows = dataset.select_columns([column for column in columns if column in wanted])
    return Table(name, columns, _number_rows(name, rows))


def _number_rows(name: str, rows: Iterable[dict[str, Any]]) -> Iterable[Row]:
    return (Row(f"{name}, row {i} (from 0)", row) for i, row in enumerate(rows))
