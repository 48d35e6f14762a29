"""Writing problems to a parquet file that all trainers read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.errors import DataError
from rollwise.files import written_whole
from rollwise.tasks.problem import Problem

OWN = ("data_source", "prompt", "reward_model", "key")
"""Columns that are not written as they were read."""


def write_problems(
    path: Path,
    problems: Sequence[Problem],
    ability: str,
    columns: Mapping[str, Sequence[Any]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write problems, whole or not at all, in verl's schema for `read_problems` to read back.

    Each has a key of its own. There are columns `key`, `level`, `subject` and `solution` besides,
    those that were read with the problems, and the further `columns` given, with a value for each
    problem. `ability` is what verl's column of that name says; `notes` are metadata of the file. A
    `RunError` says that it could not be written, a `DataError` that a column's values are of
    different kinds.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    prompt = pa.list_(pa.struct([("role", text), ("content", text)]))
    truth = pa.struct([("ground_truth", text), ("style", text)])
    extra = pa.struct([("index", pa.int64()), ("key", text)])
    arrays = {
        "data_source": pa.array([p.source for p in problems], text),
        "prompt": pa.array([list(p.messages) for p in problems], prompt),
        "ability": pa.array([ability] * len(problems), text),
        "reward_model": pa.array(
            [{"ground_truth": p.answer, "style": "rule"} for p in problems], truth
        ),
        "extra_info": pa.array([{"index": i, "key": p.key} for i, p in enumerate(problems)], extra),
        "key": pa.array([p.key for p in problems], text),
        "level": pa.array([p.level for p in problems], pa.int64()),
        "subject": pa.array([p.subject for p in problems], text),
        "solution": pa.array([p.solution for p in problems], text),
    }
    read = dict.fromkeys(name for problem in problems for name in problem.columns)
    for name in [name for name in read if name not in OWN]:
        try:
            arrays[name] = pa.array([problem.columns.get(name) for problem in problems])
        except pa.ArrowException as error:
            raise DataError(f"the column `{name}` fits no type of parquet: {error}") from error
    table = pa.table(arrays | {name: list(own) for name, own in (columns or {}).items()})
    table = table.replace_schema_metadata(dict(notes or {}))
    with written_whole(path) as partial:
        pq.write_table(table, partial, write_page_checksum=True)
