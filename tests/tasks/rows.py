"""Rows of problems, and files of them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

NOTHING_DROPPED = {
    "duplicates": 0,
    "conflicting_answers": 0,
    "missing_answers": 0,
    "empty_problems": 0,
}


def plain(problem="1+1?", answer="2", **more):
    return {"problem": problem, "answer": answer, **more}


def verl(content="1+1?", ground_truth="2", **more):
    prompt = [{"role": "user", "content": content}]
    reward_model = {"ground_truth": ground_truth, "style": "rule"}
    return {"data_source": "sums", "prompt": prompt, "reward_model": reward_model, **more}


def write(path, rows):
    """Write rows as the suffix of `path` says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def contents(problem):
    return [message["content"] for message in problem.messages]
