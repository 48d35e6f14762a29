"""Files of rows."""

import json

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(path, rows):
    """Write rows as the suffix of `path`, which is returned, says: JSON Lines, or Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


GSM8K_CARD = """---
configs:
- config_name: main
  data_files: [{split: train, path: main/train*}, {split: test, path: main/test*}]
- config_name: socratic
  data_files: [{split: train, path: socratic/train*}]
---
"""
"""Which files hold the subsets and splits of a folder with GSM8K's rows, as on the hub."""
