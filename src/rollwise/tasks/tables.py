"""Rows of a parquet file, a JSON Lines file, or a data set on the hub or in a folder."""

import codecs
import json
import os
import tempfile
import textwrap
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rollwise.errors import DataError, MissingDataError, half_of_a_pair, one_line

FILE_SUFFIXES = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True)
class Row:
    """A row's cells, and the place that an error names."""

    place: str
    cells: dict[str, Any]

    def text(self, column: str) -> str:
        """Return the text or number in a cell as text; "" if it is empty. Else a `DataError`."""
        return self.checked_text(column, self.cells.get(column))

    def checked_text(self, name: str, value: Any, must_be: str = "text or a number") -> str:
        """Return a text or number as text; "" if it is missing."""
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if value is None or (is_number and value != value):  # a missing number is written as NaN
            return ""
        if is_number or isinstance(value, str):
            return str(value)
        raise self.error(f"`{name}` must be {must_be}", value)

    def answer(self, name: str, value: Any) -> str:
        """Return an answer, or the one item of a list (OlympiadBench), as text."""
        if isinstance(value, list) and len(value) != 1:
            raise self.error(f"`{name}` must be one answer", value)
        return self.checked_text(name, value[0] if isinstance(value, list) else value)

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
    """Return whether a source is a file, existing or not, rather than a data set on the hub."""
    path = Path(source).expanduser()
    begins_as_path = isinstance(source, Path) or source.startswith((".", "/", "~"))
    return begins_as_path or path.suffix.lower() in FILE_SUFFIXES or os.path.exists(path)


def read_table(source: str | Path, split: str, subset: str | None, wanted: set[str]) -> Table:
    """Read the `wanted` columns, or all for `*`, of a file, a data set on the hub, or a folder."""
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if not is_path(source):
        return _read_hub(str(source), split, subset, wanted)
    if not os.path.exists(path):  # which takes any name
        raise MissingDataError(f"no such file: {path}")
    if suffix not in FILE_SUFFIXES and path.is_dir():
        return _read_hub(str(path), split, subset, wanted)
    if suffix not in FILE_SUFFIXES:
        raise DataError(f"{path}: must be a file that ends in {', '.join(FILE_SUFFIXES)}")
    return _read_parquet(path, wanted) if suffix == ".parquet" else _read_json(path)


def _read_parquet(path: Path, wanted: set[str]) -> Table:
    import pyarrow.parquet as pq

    def rows() -> Iterator[dict[str, Any]]:  # few at a time: a column that is refused may be large
        with _parquet(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(1024, columns=among(wanted, columns)):
                yield from batch.to_pylist()

    with _parquet(path):
        columns = list(pq.read_schema(path).names)
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise DataError(f"{path}: there are two columns named {twice[0]!r}")
    return Table(str(path), columns, _number_rows(str(path), rows()))


def among(wanted: Collection[str], columns: Iterable[str]) -> list[str]:
    """Return the `columns` that are wanted; all if `*` is."""
    return [column for column in columns if column in wanted or "*" in wanted]


@contextmanager
def _parquet(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet: {one_line(error)}") from error


def _read_json(path: Path) -> Table:
    try:
        content = path.read_bytes()  # a wrong encoding is an error of its line
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    if content.removeprefix(codecs.BOM_UTF8)[:99].lstrip().startswith(b"["):
        parsed = _parsed(f"{path}, which begins with [, is no array of rows", content)
        placed = ((f"{path}, row {i} (from 0)", cells) for i, cells in enumerate(parsed))
    else:
        lines = ((f"{path}, line {i}", line) for i, line in enumerate(content.split(b"\n"), 1))
        placed = ((place, _parsed(place, line)) for place, line in lines if line.strip())
    rows = [_json_row(place, cells) for place, cells in placed]
    columns = dict.fromkeys(column for row in rows for column in row.cells)
    return Table(str(path), list(columns), rows)


def _parsed(place: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: broken JSON: {one_line(error)}") from error


def _json_row(place: str, cells: Any) -> Row:
    if isinstance(cells, list) and len(cells) == 2:  # the turns of Open-Reasoner-Zero
        cells = {"0": cells[0], "1": cells[1]}
    if not isinstance(cells, dict):
        raise DataError(f"{place}: must be a JSON object, got {type(cells).__name__}")
    if half := half_of_a_pair(json.dumps(cells, ensure_ascii=False)):
        raise DataError(f"{place}: {half} is half of a surrogate pair, which is not a character")
    return Row(place, cells)


def _read_hub(name: str, split: str, subset: str | None, wanted: set[str]) -> Table:
    try:
        import datasets
    except ImportError as error:
        raise MissingDataError(
            f"{name!r} is not a file, and a data set on the hub or in a folder is read with the "
            'library datasets: pip install "rollwise[hub]"'
        ) from error
    chosen: dict[str, Any] = {"name": subset} if subset else {}
    try:
        with tempfile.TemporaryDirectory() as new:
            if os.path.isdir(name):  # whose copy in the usual cache may be another folder's
                chosen |= {"cache_dir": new, "keep_in_memory": True}
            dataset = datasets.load_dataset(name, **chosen, split=split)
    except Exception as error:  # the library's errors (network, cache, splits) share no type
        if not subset and "'main'" in str(error):  # of GSM8K's two, the one that is meant
            return _read_hub(name, split, "main", wanted)
        raise MissingDataError(
            f"the data set {name!r} (split {split!r}) could not be loaded: {one_line(error)}; "
            "a local parquet or JSON Lines file can be given instead"
        ) from error
    columns = list(dataset.column_names)
    rows = dataset.select_columns(among(wanted, columns))
    return Table(name, columns, _number_rows(name, rows))


def _number_rows(name: str, rows: Iterable[dict[str, Any]]) -> Iterable[Row]:
    return (Row(f"{name}, row {i} (from 0)", row) for i, row in enumerate(rows))
