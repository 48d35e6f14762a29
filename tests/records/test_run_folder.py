"""A run's folder: what goes in comes out, and going back forgets what came after."""

import json
import math
import os
import re
import subprocess

import pyarrow.parquet as pq
import pytest
from row_files import write_rows

from rollwise.errors import RunError
from rollwise.records import RunFolder
from rollwise.records.folder import describe_start

CONFIG = {"seed": 3, "model": {"path": "running-sums"}}


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.create(CONFIG)
    return made


def keep(folder, *rows):
    folder.samples.keep(rows)
    folder.flush_samples()


def kept(folder):
    return folder.samples.read().to_pylist()


def row(step, advantage=None, response="7 12=12"):
    return {"step": step, "key": "k", "response": response, "reward": 1.0, "advantage": advantage}


def test_a_start_is_recorded_with_the_commit_and_stays_when_settings_are_written_again(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert describe_start("GPU").keys() == {"date", "host", "device", "command"}
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    (tmp_path / "file").write_text("1")
    for words in (("init", "-q"), ("add", "file"), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], check=True)
    started = describe_start("GPU")
    assert re.fullmatch("[0-9a-f]{12}", started["commit"])
    (tmp_path / "file").write_text("2")
    assert describe_start("GPU")["commit"] == started["commit"] + "-dirty"
    run = RunFolder(tmp_path / "run")
    run.create(CONFIG, started=started)
    run.write_config({**CONFIG, "more": 1})
    assert run.read_about("started") == started


@pytest.mark.parametrize("left", [(), (".lock", ".config.json.partial")])
def test_what_a_command_leaves_that_is_killed_at_its_start_is_as_good_as_nothing(tmp_path, left):
    for name in left:
        (tmp_path / name).write_text("left")
    RunFolder(tmp_path).create(CONFIG)
    assert RunFolder(tmp_path).read_config() == CONFIG


@pytest.mark.parametrize(
    "content", [None, "not JSON", "[]", '{"model_type": "qwen2"}'], ids=lambda text: text or "none"
)
def test_a_folder_without_a_run_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=f"there is no run in {tmp_path}: "):
        RunFolder(tmp_path).read_config()


# Metrics


def test_a_line_that_was_cut_off_at_the_end_is_forgotten(folder):
    """As a full disk or a killed process leaves it; the run could not be resumed otherwise."""
    folder.log({"step": 0})
    folder.log({"step": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')
    assert [line["step"] for line in folder.read_metrics()] == [0, 1]
    folder.discard_after(1)
    folder.log({"step": 2})
    assert [line["step"] for line in folder.read_metrics()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (None, ""),
        ("", ""),
        ('{"step": 0', ""),
        *(
            (f'{{"step": 0}}\n{line}\n{{"step": 2}}\n', ", line 2, is broken: ")
            for line in ('{"step": 1, ', "{}", "[]", '"text"', "7", '{"step": null}')
        ),
    ],
)
def test_metrics_that_are_not_there_or_broken_are_named(folder, content, place):
    path = folder.path / "metrics.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunError) as caught:
        folder.read_metrics()
    assert f"{path}{place}" in str(caught.value)


LINES = [{"step": step, "draws": 8 * step} for step in range(5)]


@pytest.mark.parametrize(
    "left",
    [
        None,
        [],
        ["nonsense\n"],
        *([json.dumps(LINES[step]) + "\n" for step in steps] for steps in ([0, 1], [0, 2, 1, 3])),
        [json.dumps(line) + "\n" for line in [{"step": 0, "draws": 9}, *LINES[1:4]]],
    ],
    ids=["missing", "empty", "broken", "cut off", "in disorder", "changed"],
)
def test_metrics_that_are_not_as_they_were_come_back_from_the_checkpoint(
    folder, tmp_path, caplog, left
):
    """Of step 3; totals would be false otherwise."""
    saved = write_rows(tmp_path / "copy", LINES[:4])
    if left is not None:
        (folder.path / "metrics.jsonl").write_text("".join(left))
    folder.discard_after(3, saved)
    assert folder.read_metrics() == LINES[:4]
    assert "was incomplete" in caplog.text


def test_an_evaluation_that_was_added_since_the_checkpoint_stays(folder, tmp_path, caplog):
    saved = tmp_path / "copy"
    for line in LINES[:3]:
        folder.log(line)
    saved.write_bytes((folder.path / "metrics.jsonl").read_bytes())
    for changed in (LINES[2], LINES[2] | {"heldout": {}, "elapsed": 3.0}):
        folder.replace_last(changed)
        folder.log(LINES[3])
        folder.discard_after(2, saved)
        assert folder.read_metrics() == [*LINES[:2], changed]
    assert not caplog.records
    with pytest.raises(RunError, match="cannot read"):
        folder.discard_after(2, tmp_path / "no copy")


def test_a_line_is_on_the_disk_when_it_is_logged(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(
        "rollwise.records.folder.os.fsync", lambda number: synced.append(os.fstat(number))
    )
    folder.log({"step": 0})
    assert [state.st_size for state in synced] == [len('{"step":0}\n')]


# Responses


def test_responses_are_added_at_each_flush_as_they_are(folder):
    assert kept(folder) == []
    folder.flush_samples()
    assert not (folder.path / "samples").exists()
    texts = ["", "\x00\x1b[31m", "\u202eolleh", "𝔘𝔫𝔦", "a\r\nb\u2028c"]
    rows = [row(1, 0.5), row(1, -0.5), row(2), *(row(2, 0.0, text) for text in texts)]
    keep(folder, *rows[:2])
    folder.flush_samples()
    keep(folder, *rows[2:])
    assert kept(RunFolder(folder.path)) == rows


@pytest.mark.parametrize("advantages", [(None, 0.5, None), (0.5, None, 0.5)])
def test_a_column_may_hold_nothing_in_one_flush_and_numbers_in_the_next(folder, advantages):
    """No response has an advantage where no group has one: early, or late, in training."""
    rows = [row(step, advantage) for step, advantage in enumerate(advantages, 1)]
    for one in rows:
        keep(folder, one)
    assert kept(folder) == rows
    assert str(pq.read_table(folder.path / "samples").field("advantage").type) == "double"


def test_responses_that_cannot_be_read_are_an_error(folder):
    path = folder.path / "samples" / "part-00000.parquet"
    path.parent.mkdir()
    path.write_bytes(b"PAR1 no more")
    for use in (folder.samples.read, lambda: folder.discard_after(0)):
        folder.log({"step": 0})
        with pytest.raises(RunError) as caught:
            use()
        assert str(path) in str(caught.value)


@pytest.fixture
def full_at_three(folder):
    """A file of responses is full with three."""
    folder.samples.rows = 3


def test_a_file_that_is_full_is_not_written_again(folder, full_at_three):
    """So memory and time for the responses of a step do not grow with the run."""
    rows, written = [row(step, 0.5) for step in range(8)], {}
    for one in rows:
        keep(folder, one)
        files = sorted((folder.path / "samples").iterdir())
        assert all(file.stat().st_mtime_ns == written[file] for file in files[:-1])
        written = {file: file.stat().st_mtime_ns for file in files}
        assert len(pq.read_table(files[-1])) <= 3
    assert [file.name for file in written] == [f"part-0000{i}.parquet" for i in range(3)]
    assert kept(folder) == rows
    assert pq.read_table(folder.path / "samples").to_pylist() == rows
    folder.samples.keep(rows[:4])  # a run without checkpoints keeps few in memory
    assert kept(folder) == [*rows, *rows[:4]]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 9, 18])
def test_the_newest_responses_are_those_of_whole_prompts(folder, full_at_three, most):
    rows = [row(step, 0.5) for step in range(4) for _ in range(4)]
    rows += [rows[0] | {"step": 9}] * 2
    keep(folder, *rows)
    wanted = {1: 1, 2: 2, 3: 2, 5: 2, 6: 2, 9: 6, 18: 18}[most]
    assert folder.read_newest_samples(most) == (rows[-wanted:], 18)


@pytest.mark.parametrize("step", range(1, 5))
def test_responses_of_later_steps_are_gone_back_from(folder, full_at_three, step):
    rows = [row(s, 0.5) for s in (1, 2, 2, 2, 3, 3, 4, 4)]
    for one in rows:
        folder.log({"step": one["step"]})
        keep(folder, one)
    assert kept(folder) == rows
    folder.discard_after(step)
    left = [one for one in rows if one["step"] <= step]
    assert kept(folder) == left
    assert [line["step"] for line in folder.read_metrics()] == [one["step"] for one in left]
    keep(folder, row(5, -0.5))
    assert kept(folder)[-1] == row(5, -0.5)


def test_what_is_not_finite_is_null_in_strict_json(folder):
    line = {"step": 1, "loss": math.nan, "seconds": {"a": math.inf}, "draws_by_round": [-math.inf]}
    folder.log(line)
    text = (folder.path / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert folder.read_metrics()[-1] == {
        "step": 1,
        "loss": None,
        "seconds": {"a": None},
        "draws_by_round": [None],
    }
