"""Recorded rewards from every kind of file that may hold them, and what is wrong with others."""

import pytest
from row_files import write_rows

from rollwise.errors import DataError
from rollwise.simulate.recorded import read_recorded

ROWS = [
    {"key": key, "reward": reward, "tokens": tokens, "level": level}
    for key, reward, tokens, level in (
        *(("a", 1.0, 4, "Level 3"), ("b", 0.0, 7, None)),
        *(("a", 0.0, 5, None), ("a", 0.5, 6, None)),
    )
]


def shown(prompts):
    return [(p.key, p.recorded.rewards.tolist(), p.recorded.tokens.tolist()) for p in prompts]


def write_prepared(folder):
    write_rows(folder / "responses/part-00000.parquet", ROWS[:1])
    write_rows(folder / "responses/part-00001.parquet", [*ROWS[1:], {**ROWS[0], "key": "left out"}])
    write_rows(folder / "prepared.parquet", [{"key": "b", "level": None}, {"key": "a", "level": 3}])
    return folder


def write_run(folder):
    write_rows(folder / "samples/part-00000.parquet", ROWS)
    return folder


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_rows(folder / "x.jsonl", ROWS),
        lambda folder: write_rows(folder / "x.parquet", ROWS),
        write_prepared,
        write_run,
    ],
)
def test_all_kinds_of_files_say_the_same(tmp_path, write):
    found = read_recorded(write(tmp_path))
    assert shown(found) == [("a", [1.0, 0.0, 0.5], [4, 5, 6]), ("b", [0.0], [7])]
    assert [p.level for p in found] == [3, None]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": ["a"]}, "line 2: `key` must be text or a number"),
        ({"reward": "1"}, "line 2: `reward` must be a number, got str: '1'"),
        ({"reward": True}, "`reward` must be a number, got bool"),
        ({"reward": None}, "`reward` must be a number, got NoneType"),
        ({"reward": 10**400}, "`reward` must be a number, got int: ...$"),
        ({"reward": float("nan")}, "line 1: there must be rewards, all finite"),
        ({"tokens": None}, "got 1 and 2"),
        ({"key": "b", "tokens": None}, "others have none"),
        ({"tokens": 1.5}, "must be a whole number, got float: 1.5"),
        ({"tokens": 1e30}, "must be a whole number, got float: 1e.30"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, changed, said):
    with pytest.raises(DataError, match=said):
        read_recorded(write_rows(tmp_path / "x.jsonl", [ROWS[0], ROWS[0] | changed]))


def test_other_files_and_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"x\.jsonl: it needs columns `key` and `reward`"):
        read_recorded(write_rows(tmp_path / "x.jsonl", [{"reward": 1}]))
    with pytest.raises(DataError, match="neither the folder of `rollwise prepare`"):
        read_recorded(tmp_path)
    with pytest.raises(DataError, match=r"^no such file: none\.jsonl"):
        read_recorded("none.jsonl")
