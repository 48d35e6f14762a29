"""`rollwise train` from the command line: what it writes and shows, and how it ends."""

import errno
import importlib.util
import io
import json
import math
import re
import signal
import sys
import threading

import pytest
from forked import PATIENCE, Command
from rich.console import Console
from small_runs import SMALL

from rollwise.cli import main
from rollwise.commands.train_display import TrainingDisplay
from rollwise.methods import METHODS
from rollwise.records import RunFolder
from rollwise.reports import write_report
from rollwise.training import loop


def test_what_is_in_a_runs_folder(whole, metrics_of):
    assert {p.name for p in whole.iterdir()} == {
        *("config.json", "metrics.jsonl", "summary.json", "checksums.txt", "report.html"),
        *("samples", "visits", "checkpoints"),
    }
    recorded = json.loads((whole / "config.json").read_text())
    assert recorded["config"]["prompts"]["type"] == "uniform"
    assert recorded["config"]["prompts"]["batch_size"] == 4
    assert recorded["config"]["schedule"] == {"type": "rounds", "size": 8, "rounds": 2}
    assert {"rollwise", "python", "torch", "transformers"} <= recorded["versions"].keys()
    assert {"date", "host", "device"} <= recorded["started"].keys()
    lines = metrics_of(whole)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]

    summary = json.loads((whole / "summary.json").read_text())
    assert summary["before"] == lines[0]["heldout"]
    assert summary["after"] == lines[4]["heldout"]
    for estimate in (*summary["before"].values(), *summary["after"].values()):
        assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert (summary["method"], summary["steps"]) == ("reinforce_ada", 4)
    assert summary["draws"] == sum(line["draws"] for line in lines[1:])
    assert summary["tokens"] == sum(line["tokens"] for line in lines[1:])
    assert 0 < summary["seconds"] < 600
    assert all(line["cpu_seconds"] > 0 for line in RunFolder(whole).read_metrics()[1:])
    assert (
        len(RunFolder(whole).samples.read().to_pylist()) == summary["draws"]
    )  # four of four prompts a step


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_a_step_and_is_said(method, tmp_path, screen):
    run = ["--steps=1", "--output", str(tmp_path / "run"), *SMALL]
    assert main(["train", "--method", method, *run]) == 0
    batch = METHODS[method].settings.get("prompts", {}).get("batch_size", 64)
    assert f"method: {method}; differs: prompts.batch_size 4 ({batch}) " in screen()
    step = RunFolder(tmp_path / "run").read_metrics()[-1]
    assert step["step"] == 1 and step["draws"] >= 4


def test_the_end_shows_before_and_after_and_where_the_report_is(
    tmp_path, train, monkeypatch, screen
):
    """Also in another thread; and no key of the environment is in what is written or shown."""
    for name in ("WANDB_API_KEY", "TINKER_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret-key")
    folder, codes, before = tmp_path / "run", [], signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: codes.append(train(folder, steps="1")))
    thread.start()
    thread.join(PATIENCE)
    assert codes == [0]
    assert signal.getsignal(signal.SIGINT) is before
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"secret-key" in path.read_bytes()] == []
    shown = screen()
    assert "secret-key" not in shown
    assert "step 1 held-out avg@2" in shown
    assert "avg@2" in shown and "pass@2" in shown and "before" in shown and "after" in shown
    assert str(folder / "report.html") in shown.replace(" ", "")


def test_the_report_is_written_during_the_run(tmp_path, tiny_options, monkeypatch):
    folder, pages = tmp_path / "run", []

    def write(path, **how):
        page = write_report(path, **how)
        pages.append(page.read_text(encoding="utf-8"))
        return page

    monkeypatch.setattr("rollwise.reports.report.write_report", write)
    monkeypatch.setattr("rollwise.commands.train.write_report", write)
    monkeypatch.setattr("rollwise.commands.train.REPORT_EVERY", 0.0)
    monkeypatch.setattr("rollwise.reports.report.SHARE", math.inf)
    assert main(["train", "--output", str(folder), *tiny_options(steps="2")]) == 0
    assert ["The run is under way." in page for page in pages] == [True, True, True, False]
    found = [number for page in pages for number in re.findall(r"(\d) steps? ·", page)]
    assert found == ["0", "1", "2", "2"]
    assert "The run has ended." in pages[-1]


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_leaves_a_report_of_what_was_done(
    tmp_path, tiny_options, monkeypatch, times, screen
):
    """The first lets the step end, the second does not."""
    folder, learn = tmp_path / "run", loop.learn

    def interrupted(*arguments):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return learn(*arguments)

    monkeypatch.setattr(loop, "learn", interrupted)
    assert main(["train", "--output", str(folder), *tiny_options(steps="3")]) == 130
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "The run stopped before its end." in page
    assert f">{2 - times} step" in page
    shown = screen()
    assert f"to resume: rollwise train --output {folder} --resume" in shown
    assert f"report: {folder}" in shown


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_an_engine_that_is_not_installed_is_an_error_before_a_folder_is_made(
    tmp_path, train, screen
):
    assert train(tmp_path / "run", engine__type="vllm") == 2
    assert "needs vLLM: pip install vllm" in screen()
    assert not (tmp_path / "run").exists()


def test_a_run_ends_when_every_prompt_has_had_its_visits(tmp_path, train, metrics_of):
    folder = tmp_path / "run"
    settings = {"prompts__visits": "1", "prompts__batch_size": "8", "data__problems": "20"}
    assert train(folder, steps="9", **settings) == 0
    lines = metrics_of(folder)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    visited = [row["key"] for row in RunFolder(folder).visits.read().to_pylist()]
    assert len(visited) == len(set(visited)) == 20
    assert (folder / "summary.json").exists()


def test_a_folder_without_a_run_is_not_resumed_and_one_of_something_else_left_alone(
    tmp_path, train, screen
):
    (tmp_path / "notes.txt").write_text("mine")
    assert train(tmp_path) == 2
    assert "it holds something else" in screen()
    assert train(tmp_path / "nowhere", "--resume") == 2
    assert "there is nothing to resume" in screen()
    assert main(["train", "--resume"]) == 2
    assert "--output" in screen()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_policy_that_is_no_longer_finite_ends_the_run(tmp_path, train, screen):
    settings = {"learner__learning_rate": "1e30", "learner__warmup_updates": "1"}
    assert train(tmp_path / "run", **settings) == 3
    message = screen()
    assert "step 1: the policy's token probabilities are not finite" in message
    assert "nothing is saved" in message and "which is 1e+30" in message
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_nothing_is_written_to_a_terminal_that_is_gone():
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    console = Console(file=Gone())
    with TrainingDisplay(console, steps=lambda: 3) as display:
        signal.raise_signal(signal.SIGHUP)
        display.on_step({"step": 1, "heldout": {"avg@2": {"value": 0, "low": 0, "high": 0}}})
    assert display.stop_requested


@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")
def test_one_process_at_a_time_writes_to_a_folder(tmp_path, tiny_options, screen):
    """And a process that is killed locks nobody out."""
    folder = tmp_path / "run"
    options = tiny_options(steps="1000")
    first = Command("train", "--output", str(folder), *options, shown=tmp_path / "shown")
    first.wait_for((folder / "config.json").exists)

    def refusal(command):
        assert main([command, "--output", str(folder), "--seed", "7"]) == 2
        return screen()

    for command in ("train", "evaluate", "prepare"):
        assert f"{folder} is in use by another command (process " in refusal(command)
    first.send(signal.SIGKILL)
    first.end()
    assert "cannot change" in refusal("train")  # for another reason
    for command in ("evaluate", "prepare"):
        assert "of another command" in refusal(command)
