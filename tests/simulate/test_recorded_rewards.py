"""Recorded rewards from every kind of file that may hold them, and what is wrong with others."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollwise.errors import DataError
from rollwise.simulate.recorded import read_recorded

WIDE = [
    {"key": "a", "rewards": [1, 0, 0.5], "lengths": [4, 5, 6], "level": "Level 3"},
    {"key": "b", "rewards": [0.0], "lengths": [7]},
]
LONG = [
    {"key": key, "reward": reward, "tokens": tokens}
    for key, reward, tokens in (("a", 1.0, 4), ("b", 0.0, 7), ("a", 0.0, 5), ("a", 0.5, 6))
]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def shown(prompts):
    return [(p.key, p.recorded.rewards.tolist(), p.recorded.tokens.tolist()) for p in prompts]


def write_prepared(folder):
    parquet(folder / "responses/part-00000.parquet", LONG[:1])
    parquet(folder / "responses/part-00001.parquet", [*LONG[1:], {**LONG[0], "key": "left out"}])
    parquet(folder / "prepared.parquet", [{"key": "b", "level": 1}, {"key": "a", "level": 3}])
    return folder


def write_run(folder):
    parquet(folder / "samples/part-00000.parquet", LONG)
    return folder


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: lines(folder / "x.jsonl", WIDE),
        lambda folder: parquet(folder / "x.parquet", WIDE),
        lambda folder: lines(folder / "x.jsonl", LONG),
        write_prepared,
        write_run,
    ],
)
def test_all_kinds_of_files_say_the_same(tmp_path, write):
    found = read_recorded(write(tmp_path))
    assert shown(found) == [("a", [1.0, 0.0, 0.5], [4, 5, 6]), ("b", [0.0], [7])]


def test_levels_are_read_and_lengths_and_keys_may_be_missing(tmp_path):
    assert [p.level for p in read_recorded(lines(tmp_path / "x.jsonl", WIDE))] == [3, None]
    assert [p.level for p in read_recorded(write_prepared(tmp_path / "folder"))] == [3, 1]
    found = read_recorded(lines(tmp_path / "y.jsonl", [{"rewards": [1, 0]}, {"rewards": [0]}]))
    assert shown(found) == [("row 0", [1.0, 0.0], []), ("row 1", [0.0], [])]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"reward": 1}], "x.jsonl: it needs a column `rewards` .*; its columns are reward"),
        ([{"rewards": 1}], "line 1: `rewards` must be a list of numbers, got int: 1"),
        ([{"rewards": ["1"]}], "`rewards` must be a number, got str: '1'"),
        ([{"rewards": [True]}], "`rewards` must be a number, got bool"),
        ([{"rewards": []}], "line 1: rewards must be finite, one or more"),
        ([{"rewards": [1], "lengths": [1, 2]}], "got 2 and 1"),
        ([{"rewards": [1], "lengths": [0]}], "at least 1 token, got 0"),
        ([{"rewards": [1], "lengths": [2]}, {"rewards": [1]}], "others have none"),
        ([{"rewards": [1], "lengths": [1.5]}], "a whole number of tokens, got float: 1.5"),
        ([{"rewards": [1], "lengths": [1e30]}], "a whole number of tokens, got float: 1e.30"),
        ([{"key": "a", "rewards": [1]}] * 2, "the key 'a' is there twice"),
        ([{"key": "a", "reward": None}], "`reward` must be a number, got NoneType"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, rows, said):
    with pytest.raises(DataError, match=said):
        read_recorded(lines(tmp_path / "x.jsonl", rows))


def test_other_files_and_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="neither the folder of `rollwise prepare`"):
        read_recorded(tmp_path)
    with pytest.raises(DataError, match=r"^no such file: none\.jsonl \(the current folder is /"):
        read_recorded("none.jsonl")
