"""Writing problems to a parquet file that all trainers read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.files import written_whole
from rollwise.tasks.problem import Problem


def write_problems(
    path: Path,
    problems: Sequence[Problem],
    ability: str,
    columns: Mapping[str, Sequence[Any]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write problems in verl's schema, with columns `key`, `level`, `subject` and `solution`.

    `read_problems` reads the same problems back.

    Args:
        path: The file; it is written whole or not at all.
        problems: Each has a key of its own.
        ability: What verl's column of that name says.
        columns: Further columns, with a value for each problem.
        notes: Further metadata of the file.

    Raises:
        RunError: It could not be written.
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
    table = pa.table(arrays | {name: list(own) for name, own in (columns or {}).items()})
    table = table.replace_schema_metadata(dict(notes or {}))
    with written_whole(path) as partial:
        pq.write_table(table, partial, write_page_checksum=True)
