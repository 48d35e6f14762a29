"""Problems as files that verl reads."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rollwise.config import TrainConfig
from rollwise.files import written_whole
from rollwise.tasks import Problem
from rollwise.tasks.columns import feature_columns
from rollwise.training.data import read_both

EXTRA = pa.struct(
    [
        ("index", pa.int64()),
        ("key", pa.string()),
        ("features", pa.string()),
    ]
)


def write_data(config: TrainConfig, folder: Path) -> tuple[Path, Path]:
    """Write `train.parquet` and `heldout.parquet` in verl's schema, no problem in both.

    Raises:
        DataError: The problems cannot be read, or none is left.
    """
    train, heldout = read_both(config)
    return (
        _write(train, folder / "train.parquet"),
        _write(heldout[: config.evaluation.problems], folder / "heldout.parquet"),
    )


def _write(problems: Sequence[Problem], path: Path) -> Path:
    columns = feature_columns(problems)
    features = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = {
        "data_source": [problem.source or "rollwise" for problem in problems],
        "prompt": [list(problem.messages) for problem in problems],
        "reward_model": [{"style": "rule", "ground_truth": p.answer} for p in problems],
        "extra_info": pa.array(
            [
                {"index": i, "key": p.key, "features": json.dumps(features[i])}
                for i, p in enumerate(problems)
            ],
            EXTRA,
        ),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        pq.write_table(pa.table(rows), partial)
    return path
