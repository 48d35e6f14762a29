"""Problems as files that verl reads, and what these files say about prompts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollwise.config import TrainConfig
from rollwise.errors import RunError
from rollwise.files import written_whole
from rollwise.tasks import Problem
from rollwise.tasks.columns import feature_columns
from rollwise.tasks.problem import problem_key
from rollwise.training.data import check_batch, read_both

EXTRA = pa.struct([("index", pa.int64()), ("key", pa.string()), ("features", pa.string())])


def write_data(config: TrainConfig, train_file: Path, heldout_file: Path, begun: bool) -> None:
    """Write the problems that settings name in verl's schema; no problem is in both files.

    A RunError if the files of a run that has `begun` have other problems.
    """
    train, heldout = read_both(config)
    check_batch(config, len(train))
    _write(train, train_file, begun)
    _write(heldout[: config.evaluation.problems], heldout_file, begun)


def _write(problems: Sequence[Problem], path: Path, begun: bool) -> None:
    columns = feature_columns(problems)
    features = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    extra = [
        {"index": i, "key": problem.key, "features": json.dumps(features[i], default=str)}
        for i, problem in enumerate(problems)
    ]
    rows = {
        "data_source": [problem.source or "rollwise" for problem in problems],
        "prompt": [list(problem.messages) for problem in problems],
        "reward_model": [{"style": "rule", "ground_truth": p.answer} for p in problems],
        "extra_info": pa.array(extra, EXTRA),
    }
    table = pa.table(rows)
    if begun and path.exists() and pq.read_table(path).to_pylist() != table.to_pylist():
        raise RunError(
            f"the problems are not those in {path}, with which the run was begun: put the data "
            "back as they were, or give another --output"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        pq.write_table(table, partial)


def read_prompts(rows: Any, prompt_key: str) -> tuple[dict[str, int], dict[str, list[Any]]]:
    """Read a data set of verl's: key -> place of its prompts, and what it says about them.

    The latter are columns, with a value for each prompt. Files that `rollwise verl` wrote have keys
    and columns in `extra_info`; in other files the key is a hash of the prompt, and a level may be
    known. Of equal prompts the first is used.
    """
    found = rows["extra_info"] if "extra_info" in rows.column_names else [None] * len(rows)
    extras = [extra or {} for extra in found]
    places: dict[str, int] = {}
    for place, (messages, extra) in enumerate(zip(rows[prompt_key], extras, strict=True)):
        places.setdefault(extra.get("key") or problem_key(tuple(messages)), place)
    used = [extras[place] for place in places.values()]
    features = [json.loads(e.get("features") or "null") or {"level": e.get("level")} for e in used]
    names = dict.fromkeys(name for row in features for name in row)
    return places, {name: [row.get(name) for row in features] for name in names}
