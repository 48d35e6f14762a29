"""`rollwise train` from the command line: what it writes, and how it stops and resumes."""

import errno
import importlib.util
import io
import json
import math
import re
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
import safetensors.torch
from forked import Command
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rollwise.cli import main
from rollwise.commands.train import summarise
from rollwise.commands.train_display import TrainingDisplay
from rollwise.config import make_config
from rollwise.errors import RunError
from rollwise.models.loading import load_model
from rollwise.records import RunFolder
from rollwise.reports import LiveReport, write_report
from rollwise.tasks import make_running_sums
from rollwise.training import loop
from rollwise.training.learner import Learner

PATIENCE = 120.0  # seconds for what must come; nothing waits that long unless it is broken
MATH = Path(__file__).parents[3] / "shared" / "data" / "math_train.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_options):
    """The folder of a run of four steps that was not interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["train", "--output", str(folder), *tiny_options(evaluation__every="2")]) == 0
    return folder


def test_what_is_in_a_runs_folder(whole, metrics_of):
    assert {p.name for p in whole.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "checksums.txt",
        "samples",
        "visits",
        "checkpoints",
        "report.html",
    }
    recorded = json.loads((whole / "config.json").read_text())
    assert recorded["config"]["prompts"]["type"] == "uniform"
    assert recorded["config"]["prompts"]["batch_size"] == 4
    schedule = {"type": "rounds", "size": 8, "rounds": 2, "total_draws": None}
    assert recorded["config"]["schedule"] == schedule
    assert {"rollwise", "python", "torch", "transformers"} <= recorded["versions"].keys()
    assert {"date", "host", "device"} <= recorded["started"].keys()
    lines = metrics_of(whole)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]

    summary = json.loads((whole / "summary.json").read_text())
    assert summary["before"] == lines[0]["heldout"]
    assert summary["after"] == lines[4]["heldout"]
    for name in ("avg@2", "pass@2"):
        for moment in ("before", "after"):
            estimate = summary[moment][name]
            assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert summary["steps"] == 4
    assert summary["draws"] == sum(line["draws"] for line in lines[1:])
    assert summary["tokens"] == sum(line["tokens"] for line in lines[1:])
    assert 0 < summary["seconds"] < 600
    assert len(RunFolder(whole).read_samples()) == summary["draws"]  # four of four prompts a step
    report = (whole / "report.html").read_text(encoding="utf-8")
    assert 'id="data"' in report


def test_the_end_shows_before_and_after_and_where_the_report_is(
    tmp_path, train, capsys, monkeypatch
):
    """And no key of the environment is in anything that is written or shown."""
    for name in ("WANDB_API_KEY", "TINKER_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret-key")
    folder = tmp_path / "run"
    assert train(folder, steps="1") == 0
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"secret-key" in path.read_bytes()] == []
    shown = " ".join(capsys.readouterr().out.split())
    assert "secret-key" not in shown
    assert "step 1 held-out avg@2" in shown
    assert "avg@2" in shown and "pass@2" in shown and "before" in shown and "after" in shown
    assert str(folder / "report.html") in shown.replace(" ", "")


def test_the_report_is_written_while_the_run_goes_on(tmp_path, tiny_options, monkeypatch):
    folder, pages = tmp_path / "run", []

    def page():
        return (folder / "report.html").read_text(encoding="utf-8")

    class Watched(LiveReport):
        def step_ended(self):
            super().step_ended()
            pages.append(page())

    monkeypatch.setattr("rollwise.commands.train.REPORT_EVERY", 0.0)
    monkeypatch.setattr("rollwise.reports.live.SHARE", math.inf)
    monkeypatch.setattr("rollwise.commands.train.LiveReport", Watched)
    assert main(["train", "--output", str(folder), *tiny_options(steps="2")]) == 0
    assert [number for text in pages for number in re.findall(r"(\d) steps? ·", text)] == list(
        "012"
    )
    assert all("The run goes on." in text for text in pages)
    assert "The run has ended." in page()

    def broken(*arguments):
        raise RunError("out of order")

    monkeypatch.setattr("rollwise.training.loop.learn", broken)
    assert main(["train", "--output", str(folder), *tiny_options(steps="3")]) == 2
    assert "The run has ended." in page()  # no step has been taken since
    folder = tmp_path / "other"
    assert main(["train", "--output", str(folder), *tiny_options(steps="3")]) == 2
    assert "The run has not ended, and does not go on." in page()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_leaves_a_report_of_what_was_done(
    tmp_path, tiny_options, monkeypatch, capsys, times
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
    assert "The run has not ended, and does not go on." in page
    assert f">{2 - times} step" in page
    assert (f"report: {folder}" in " ".join(capsys.readouterr().out.split())) == (times == 1)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_an_engine_that_is_not_installed_is_an_error_before_a_folder_is_made(
    tmp_path, train, capsys
):
    assert train(tmp_path / "run", engine__type="vllm") == 2
    assert "needs vLLM: pip install vllm" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_summary_adds_up():
    """Held-out figures of the first and the last evaluation; step 0 draws nothing."""
    metrics = [
        {"step": 0, "heldout": "first", "grader_failures": 3, "elapsed": 1.0},
        {"step": 1, "grader_failures": 2, "draws": 10, "tokens": 100, "elapsed": 2.0},
        {"step": 2, "draws": 20, "tokens": 150, "heldout": "second", "elapsed": 5.5},
    ]
    assert summarise(metrics) == {
        "before": "first",
        "after": "second",
        "steps": 2,
        "draws": 30,
        "tokens": 250,
        "grader_failures": 5,
        "seconds": 5.5,
    }


# Resuming.


def test_two_steps_and_two_more_are_four_steps(tmp_path, train, whole, state_of):
    folder = tmp_path / "run"
    assert train(folder, steps="2", evaluation__every="2") == 0
    assert train(folder, "--resume", evaluation__every="2") == 0
    assert state_of(folder) == state_of(whole)
    assert RunFolder(folder).read_samples() == RunFolder(whole).read_samples()
    assert RunFolder(folder).read_visits().equals(RunFolder(whole).read_visits())
    # The settings that are written down are those that the run has now.
    assert RunFolder(folder).read_config() == RunFolder(whole).read_config()
    summaries = [json.loads((f / "summary.json").read_text()) for f in (folder, whole)]
    for summary in summaries:
        del summary["seconds"]
    assert summaries[0] == summaries[1]
    # Without --steps it is four steps, and they are done.
    assert main(["train", "--output", str(folder), "--resume"]) == 0
    assert state_of(folder) == state_of(whole)


@pytest.mark.parametrize(
    "sampler",
    [
        {"type": "cdas", "form": "calibrated", "revisit_share": "0.25"},
        {"type": "posterior"},
        {"type": "prioritized", "retire_at": "0.9", "retire_after": "1"},
        {"type": "worth", "visits": "1"},
        {"type": "curriculum", "min_level": "3", "uniform_steps": "3"},
    ],
    ids=lambda sampler: sampler["type"],
)
def test_every_sampler_resumes_as_if_it_had_never_stopped(tmp_path, train, state_of, sampler):
    changed = {f"prompts__{name}": value for name, value in sampler.items()}
    changed |= {"group__zero_variance": "refill", "evaluation__every": "2"}
    assert train(tmp_path / "whole", **changed) == 0
    assert train(tmp_path / "run", **changed | {"steps": "2"}) == 0
    assert train(tmp_path / "run", "--resume", **changed) == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")


def test_a_run_ends_when_every_prompt_has_had_its_visits(tmp_path, train, metrics_of):
    folder = tmp_path / "run"
    assert (
        train(folder, steps="9", prompts__visits="1", prompts__batch_size="8", data__problems="20")
        == 0
    )
    lines = metrics_of(folder)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert "heldout" in lines[-1]
    visited = [row["key"] for row in RunFolder(folder).read_visits().to_pylist()]
    assert len(visited) == len(set(visited)) == 20
    assert (folder / "summary.json").exists()


def test_a_state_of_another_sampler_is_refused(tmp_path, train, capsys):
    assert train(tmp_path / "run", steps="1") == 0
    assert train(tmp_path / "run", "--resume", prompts__type="posterior") == 2
    assert "`prompts.type` cannot change" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")
@pytest.mark.parametrize(
    ("number", "code_wanted", "said"),
    [
        (signal.SIGINT, 130, "stopping after this step"),
        (signal.SIGTERM, 143, "SIGTERM: saving the run"),
    ],
)
def test_a_run_that_is_asked_to_stop_is_saved_and_resumes_to_the_same_end(
    tmp_path, train, tiny_options, state_of, number, code_wanted, said
):
    """All its processes get the signal, as from a terminal, and from most clusters."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    settings = {"steps": "8", "evaluation__every": "0"}
    assert train(whole, **settings) == 0
    metrics = folder / "metrics.jsonl"
    options = tiny_options(**settings)
    command = Command("train", "--output", str(folder), *options, shown=tmp_path / "shown")
    command.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2)
    command.send_to_all(number)
    code, shown = command.end()
    assert code == code_wanted, shown
    done = len(metrics.read_text().splitlines()) - 1
    assert 1 <= done < 8
    words = " ".join(shown.split())
    assert said in words
    assert f"stopped after step {done}" in words
    assert "rollwise train --output" in words and "--resume" in words
    assert not (folder / "summary.json").exists()
    assert "Traceback" not in shown

    # As it was said, with nothing else.
    assert main(["train", "--output", str(folder), "--resume"]) == 0
    assert state_of(folder) == state_of(whole)
    assert RunFolder(folder).read_samples() == RunFolder(whole).read_samples()


def refuse_from(call):
    """A `save_file` that writes until a call, and then finds the disk full."""
    real, calls = safetensors.torch.save_file, []

    def save_file(*arguments, **options):
        calls.append(arguments)
        if len(calls) >= call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments, **options)

    return save_file


def test_a_full_disk_stops_the_run_and_it_can_be_resumed(
    tmp_path, train, whole, state_of, monkeypatch, capsys
):
    folder = tmp_path / "run"
    settings = {"checkpoint__every": "1", "evaluation__every": "2"}
    with monkeypatch.context() as patched:
        patched.setattr("safetensors.torch.save_file", refuse_from(call=3))
        assert train(folder, **settings) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "could not write" in message and "No space left on device" in message
    assert str(folder / "checkpoints" / "step-000003") in message
    names = sorted(p.name for p in (folder / "checkpoints").iterdir())
    assert names == ["step-000001", "step-000002"]

    assert train(folder, "--resume", **settings) == 0
    assert state_of(folder) == state_of(whole)
    assert RunFolder(folder).read_samples() == RunFolder(whole).read_samples()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, train, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert train(tmp_path) == 2
    assert "it holds something else" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_policy_that_is_no_longer_finite_ends_the_run(tmp_path, train, capsys):
    settings = {"learner__learning_rate": "1e30", "learner__warmup_updates": "1"}
    assert train(tmp_path / "run", **settings) == 3
    message = " ".join(capsys.readouterr().err.split())
    assert "step 1: the policy draws tokens whose probabilities are not finite" in message
    assert "nothing is saved" in message and "it is 1e+30" in message
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("noticed", ["when it is saved", "when it draws"])
def test_a_checkpoint_from_before_the_policy_broke_is_kept(
    tmp_path, train, monkeypatch, capsys, noticed
):
    folder, updates = tmp_path / "run", []
    step = Learner._step

    def breaking(self):
        updates.append(step(self))
        if len(updates) == 3:
            self.parameters[0].data.fill_(float("nan"))
        return updates[-1]

    monkeypatch.setattr(Learner, "_step", breaking)
    if noticed == "when it draws":
        monkeypatch.setattr(Learner, "_refuse_if_not_finite", lambda self: None)
    every = "1" if noticed == "when it is saved" else "2"
    assert train(folder, checkpoint__every=every, checkpoint__keep="1") == 3
    message = " ".join(capsys.readouterr().err.split())
    assert "step 3: the " in message
    assert f"the last checkpoint, {folder / 'checkpoints' / 'step-000002'}, is from" in message
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000002"]


class Killed(BaseException):
    """What nothing catches."""


def kill_in(monkeypatch, name, call):
    """Has a run die in a call of a function."""
    module, _, function = name.rpartition(".")
    real, calls = getattr(sys.modules[module], function), []

    def dying(*arguments, **options):
        calls.append(arguments)
        if len(calls) == call:
            raise Killed
        return real(*arguments, **options)

    monkeypatch.setattr(name, dying)


@pytest.mark.parametrize(
    ("function", "call", "how"),
    [
        ("rollwise.training.loop.evaluate", 1, []),
        ("rollwise.training.loop.learn", 2, []),
        ("rollwise.training.loop.learn", 2, ["--resume"]),
        ("rollwise.training.loop.save_checkpoint", 1, []),
        ("rollwise.training.loop.save_checkpoint", 2, []),
        ("rollwise.commands.train.write_report", 1, []),
    ],
    ids=["evaluation", "step 2", "step 2, resume", "first save", "second save", "report"],
)
def test_one_command_begins_resumes_and_says_that_all_is_done(
    tmp_path, train, whole, state_of, monkeypatch, capsys, function, call, how
):
    """Wherever it is killed; a script that repeats it needs nothing else."""
    folder, settings = tmp_path / "run", {"checkpoint__every": "2", "evaluation__every": "2"}
    kill_in(monkeypatch, function, call)
    with pytest.raises(Killed):
        train(folder, **settings)
    if "checkpoint" in function:  # as SIGKILL leaves it
        (folder / "checkpoints" / ".step-000002.partial" / "model").mkdir(parents=True)
    (folder / ".lock").write_text("process 1")
    assert train(folder, *how, **settings) == 0
    assert state_of(folder) == state_of(whole)
    assert RunFolder(folder).read_samples() == RunFolder(whole).read_samples()
    assert not list(folder.rglob(".*"))
    before = (folder / "summary.json").stat().st_mtime_ns
    capsys.readouterr()
    assert train(folder, *how, **settings) == 0
    assert f"the run in {folder} is done" in "".join(capsys.readouterr().out.split("\n"))
    assert (folder / "summary.json").stat().st_mtime_ns == before


def test_a_summary_is_of_the_run_as_it_is(tmp_path, train, monkeypatch):
    """A run that is continued has none until its new end."""
    folder = tmp_path / "run"
    assert train(folder, steps="1") == 0
    kill_in(monkeypatch, "rollwise.training.loop.learn", 1)
    with pytest.raises(Killed):
        train(folder, steps="2")
    assert not (folder / "summary.json").exists()
    assert train(folder, steps="2") == 0
    assert json.loads((folder / "summary.json").read_text())["steps"] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")
@pytest.mark.parametrize("command", ["train", "evaluate", "prepare"])
def test_one_process_at_a_time_writes_to_a_folder(tmp_path, tiny_options, capsys, command):
    """And a process that is killed locks nobody out."""
    folder = tmp_path / "run"
    options = tiny_options(steps="1000")
    first = Command("train", "--output", str(folder), *options, shown=tmp_path / "shown")
    first.wait_for((folder / "config.json").exists)
    assert main([command, "--output", str(folder), "--seed", "7"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"{folder} is in use by another command (process " in message
    first.send(signal.SIGKILL)
    first.end()
    assert main([command, "--output", str(folder), "--seed", "7"]) == 2  # for another reason
    message = " ".join(capsys.readouterr().err.split())
    assert "in use" not in message
    assert ("cannot change" if command == "train" else "of another command") in message


def test_going_on_needs_a_folder_with_a_run_that_got_somewhere(tmp_path, train, capsys):
    assert main(["train", "--resume"]) == 2
    assert "--output" in capsys.readouterr().err
    assert train(tmp_path / "nowhere", "--resume") == 2
    assert "there is nothing to resume" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("damaged", ["metrics.jsonl", "samples", "visits"])
def test_records_of_a_run_that_is_done_are_checked(tmp_path, train, whole, capsys, caplog, damaged):
    """Where the command is repeated, and in the report; a run that goes on from there says so."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    file = folder / damaged
    if file.is_dir():
        [file] = file.iterdir()
        file.unlink()
    else:
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    said = f"{file.relative_to(folder)} is missing, or is not what was written"
    assert train(folder, evaluation__every="2") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"warning: Records are damaged (from the beginning). {said}" in shown
    assert said in write_report(folder).read_text()
    assert train(folder, steps="5", evaluation__every="2") == 0
    assert said in caplog.text


def test_what_was_damaged_since_is_noticed_on_resuming(tmp_path, train, whole, capsys, metrics_of):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    settings = {"steps": "5", "evaluation__every": "2"}

    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"path": "running-sums"', '"path": "my"'))
    assert train(folder, "--resume", **settings) == 2
    assert "`model.path` cannot change" in " ".join(capsys.readouterr().err.split())
    (folder / "config.json").write_text(config)

    saved = folder / "checkpoints" / "step-000004" / "run" / "config.json"
    content = saved.read_bytes()
    saved.write_bytes(content.replace(b"timeout", b"tiieout"))
    assert train(folder, "--resume", **settings) == 2
    assert "run/config.json differ" in " ".join(capsys.readouterr().err.split())
    saved.write_bytes(content)

    optimizer = folder / "checkpoints" / "step-000004" / "optimizer.safetensors"
    content = optimizer.read_bytes()
    optimizer.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert train(folder, "--resume", **settings) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "step-000004 is damaged: optimizer.safetensors" in message
    optimizer.write_bytes(content)

    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:3]))
    assert train(folder, "--resume", **settings) == 0
    assert metrics_of(folder)[:5] == metrics_of(whole)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["draws"] == sum(line["draws"] for line in metrics_of(folder)[1:])


@pytest.mark.parametrize(
    ("name", "changed", "was", "given"),
    [
        ("engine.temperature", {"engine__temperature": "0.5"}, "1.0", "0.5"),
        ("exit.type", {"exit__type": "fixed_count"}, "'balanced'", "'fixed_count'"),
        ("seed", {"seed": "7"}, "0", "7"),
        ("evaluation.samples", {"evaluation__samples": "3"}, "2", "3"),
    ],
)
def test_a_run_keeps_its_settings(whole, train, capsys, state_of, name, changed, was, given):
    before = state_of(whole)
    assert train(whole, "--resume", **{"evaluation__every": "2"} | changed) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"`{name}` cannot change" in message
    assert f"has {was}, given was {given}" in message
    assert state_of(whole) == before


# Other methods, models and data.


def test_a_fixed_count_is_grpo(tmp_path, train, metrics_of):
    folder = tmp_path / "run"
    arguments = ["train", "--output", str(folder), "--steps", "2", "--exit.type", "fixed_count"]
    arguments += ["--prompts.batch_size", "4", "--data.max_terms", "4", "--engine.max_new_tokens"]
    arguments += ["16", "--evaluation.problems", "4", "--evaluation.samples", "2"]
    assert main(arguments) == 0
    steps = metrics_of(folder)[1:]
    assert all(step["draws"] == 16 and step["draws_by_round"] == [4] for step in steps)
    assert all(step["trained_groups"] == 4 for step in steps)
    assert all(step["zero_variance_first"] == step["zero_variance_after"] for step in steps)
    rows = [row for row in RunFolder(folder).read_samples() if row["step"] == 1]
    for key in {row["key"] for row in rows}:
        assert sum(row["advantage"] for row in rows if row["key"] == key) == pytest.approx(0)


def test_positive_focused_stops_at_the_first_correct_response(tmp_path, train, metrics_of):
    folder = tmp_path / "run"
    assert train(folder, exit__type="positive_focused", schedule__size="2") == 0
    for step in metrics_of(folder)[1:]:
        assert step["exits"]["satisfied"] + step["exits"]["exhausted"] == 4
    rows = RunFolder(folder).read_samples()
    for step, key in {(row["step"], row["key"]) for row in rows}:
        rewards = [row["reward"] for row in rows if (row["step"], row["key"]) == (step, key)]
        assert len(rewards) == 4 or any(rewards)
        assert len(rewards) == 2 or not any(rewards[:2])


def test_several_updates_a_step_resume_alike(tmp_path, train, state_of, metrics_of):
    """Mini-batches, the warm-up, an entropy bonus and members chosen at random."""
    settings = {
        "evaluation__every": "1",
        "learner__mini_batches": "2",
        "learner__entropy_coefficient": "0.01",
        "learner__warmup_updates": "5",
        "group__order": "random",
        "group__zero_variance": "keep",
    }
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert train(whole, **settings, steps="2") == 0
    assert train(folder, **settings, steps="1") == 0
    assert train(folder, "--resume", **settings, steps="2") == 0
    assert state_of(folder) == state_of(whole)
    assert all(step["trained_groups"] == 4 for step in metrics_of(whole)[1:])


def test_recomputed_activations_change_nothing(tmp_path, train, whole, state_of):
    folder = tmp_path / "run"
    assert train(folder, evaluation__every="2", model__gradient_checkpointing="true") == 0
    state = state_of(folder)
    for name in ("model/model.safetensors", "optimizer.safetensors"):
        assert state[Path(name)] == state_of(whole)[Path(name)]
    assert state["metrics"] == state_of(whole)["metrics"]


def test_adapters_are_trained_saved_and_resumed(tmp_path, train, state_of):
    pytest.importorskip("peft")
    settings = {
        "model__lora_rank": "4",
        "learner__learning_rate": "0.01",
        "evaluation__every": "1",
    }
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert train(whole, **settings, steps="2") == 0
    assert train(folder, **settings, steps="1") == 0
    early = state_of(folder)
    assert train(folder, "--resume", **settings, steps="2") == 0
    assert state_of(folder) == state_of(whole)
    adapters = Path("model/adapter_model.safetensors")
    assert Path("model/model.safetensors") not in early
    assert early[adapters] != state_of(folder)[adapters]
    trained = safetensors.torch.load(early[adapters])
    assert all("lora_" in name for name in trained)
    # B begins at 0: what is not 0 was learnt.
    assert any(value.abs().max() > 0 for name, value in trained.items() if "lora_B" in name)


def test_broken_adapters_are_named(tmp_path, train, capsys):
    pytest.importorskip("peft")
    folder = tmp_path / "run"
    assert train(folder, steps="1", model__lora_rank="2") == 0
    model = folder / "checkpoints" / "step-000001" / "model"
    (model / "adapter_model.safetensors").write_text("nonsense")
    (model.parent / "checksums.txt").unlink()  # which would have noticed before
    assert train(folder, "--resume", model__lora_rank="2") == 2
    assert f"the adapters in {model} cannot be read" in " ".join(capsys.readouterr().err.split())


def write_problems(path, count=40):
    problems = make_running_sums(count, 2, 4, seed=11)
    rows = [{"problem": p.messages[0]["content"], "answer": p.answer} for p in problems]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


TOML = """
steps = 2
[data]
train = "{problems}"
[grading]
{grading}
[prompts]
batch_size = 4
[engine]
max_new_tokens = 16
[evaluation]
problems = 10
samples = 2
"""


def write_toml(folder, grading):
    settings = folder / "settings.toml"
    settings.write_text(TOML.format(problems=folder / "problems.jsonl", grading=grading))
    return str(settings)


def test_a_users_settings_and_problems(tmp_path, metrics_of):
    """Of 40 problems a tenth is held out; an option goes before the file."""
    rows = write_problems(tmp_path / "problems.jsonl")
    settings = write_toml(tmp_path, 'type = "exact"')
    folder = tmp_path / "run"
    arguments = ["train", settings, "--output", str(folder), "--records.prompts_per_step", "9"]
    assert main([*arguments, "--steps", "3"]) == 0
    assert [line["step"] for line in metrics_of(folder)] == [0, 1, 2, 3]
    answers = {row["problem"]: row["answer"] for row in rows}
    samples = RunFolder(folder).read_samples()
    assert len(samples) == 3 * 4
    for row in samples:
        assert row["answer"] == answers[row["question"]]
        assert row["reward"] == float(row["response"].rpartition("=")[2].strip() == row["answer"])
    config = RunFolder(folder).read_config()
    assert config["grading"]["type"] == "exact"
    assert config["steps"] == 3


GRADER = """
def grade(response, answer):
    if len(response) % 2:
        raise ValueError(f"odd: {response}")
    return float(response.rpartition("=")[2] == answer)
"""


def test_a_grader_that_raises_costs_a_reward_and_stops_nothing(tmp_path, metrics_of, monkeypatch):
    write_problems(tmp_path / "problems.jsonl")
    (tmp_path / "grader_of_a_test.py").write_text(GRADER)
    monkeypatch.chdir(tmp_path)
    grading = 'type = "function"\nfunction = "grader_of_a_test:grade"\nworkers = 1'
    settings = write_toml(tmp_path, grading)
    arguments = ["train", settings, "--output", "run", "--records.prompts_per_step", "4"]
    assert main(arguments) == 0
    lines, rows = metrics_of(tmp_path / "run"), RunFolder(tmp_path / "run").read_samples()
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines[1:]:
        odd = [len(r["response"]) % 2 for r in rows if r["step"] == line["step"]]
        assert len(odd) == line["draws"]
        assert sum(odd) > 0
        if "heldout" in line:  # the evaluation's failures are counted with the step's
            assert line["grader_failures"] > sum(odd)
        else:
            assert line["grader_failures"] == sum(odd)
    assert lines[0]["grader_failures"] > 0
    assert all(row["reward"] == 0 for row in rows if len(row["response"]) % 2)


def save_tiny_qwen(folder, texts):
    """A random Qwen2 with a byte-level tokenizer of about 1,000 tokens, learnt from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|pad|>"
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def test_a_model_keeps_the_tokenizer_that_was_saved_with_it(tmp_path):
    """transformers 5 would give a Qwen2 its usual one: other splits, other special tokens."""
    texts = ["What is 12 + 345?", "Let $x = \\frac{1}{2}$.  Find x!", "Ünïcödé\n\tcode"]
    save_tiny_qwen(tmp_path, texts)
    _, tokenizer = load_model(make_config({"model": {"path": str(tmp_path)}}).model)
    own = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*texts, "1234567890 times don't"]:
        ids = tokenizer.encode(text)
        assert ids == own.encode(text).ids
        assert tokenizer.decode(ids) == text
    _, built_in = load_model(make_config().model)
    assert built_in.decode(built_in.encode("7 12 3 6=6")) == "7 12 3 6=6"
    assert max(built_in.all_special_ids) < len(built_in) == 17


@pytest.mark.slow
@pytest.mark.skipif(not MATH.exists(), reason=f"needs {MATH}")
def test_a_step_on_real_problems_of_mathematics(tmp_path, metrics_of):
    """A random Qwen2 on 64 MATH problems, graded by Math-Verify: it earns nothing, and all runs."""
    import pyarrow.parquet as pq

    table = pq.read_table(MATH)
    rows = [r for r in table.slice(0, 200).to_pylist() if r["reward_model"]["ground_truth"]][:80]
    assert len(rows) == 80
    problems = tmp_path / "problems.parquet"
    pq.write_table(table.from_pylist(rows), problems)
    questions = [row["prompt"][-1]["content"] for row in rows]
    save_tiny_qwen(tmp_path / "model", questions)
    folder = tmp_path / "run"
    settings = {
        "model.path": tmp_path / "model",
        "data.train": problems,
        "steps": 1,
        "prompts.batch_size": 64,
        "schedule.rounds": 2,
        "engine.max_new_tokens": 32,
        "group.zero_variance": "keep",
        "learner.entropy_coefficient": 1e-4,
        "learner.learning_rate": 1e-3,
        "evaluation.samples": 2,
        "records.prompts_per_step": 64,
    }
    options = [part for k, v in settings.items() for part in (f"--{k}", str(v))]
    assert main(["train", "--output", str(folder), *options]) == 0
    before, step = metrics_of(folder)
    assert step["prompts"] == step["trained_groups"] == 64
    assert 64 * 8 <= step["draws"] <= 64 * 16
    assert 0 <= step["reward"] <= 0.1
    assert step["grader_failures"] <= 0.05 * step["draws"]
    assert step["entropy"] == pytest.approx(6.9, abs=0.2)  # ln 1000
    assert step["grad_norm"] > 0
    assert step["skipped_updates"] == 0
    assert before["heldout"]["avg@2"]["value"] <= 0.1
    kept = RunFolder(folder).read_samples()
    assert len(kept) == step["draws"]
    assert {row["question"] for row in kept} <= set(questions)
    assert RunFolder(folder).read_config()["grading"]["type"] == "math"


# Ctrl-C, by the display that hears it.


def test_the_first_ctrl_c_asks_and_the_second_stops():
    before = signal.getsignal(signal.SIGINT)
    display = TrainingDisplay(Console(file=io.StringIO()), steps=lambda: 3)
    with pytest.raises(KeyboardInterrupt), display:
        assert not display.stop_requested
        signal.raise_signal(signal.SIGINT)
        assert display.stop_requested
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_is_written_to_a_terminal_that_is_gone():
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    console = Console(file=Gone())
    with TrainingDisplay(console, steps=lambda: 3) as display:
        signal.raise_signal(signal.SIGHUP)
        display.on_step({"step": 1, "heldout": {"avg@2": {"value": 0, "low": 0, "high": 0}}})
    assert display.stop_requested


def test_a_run_in_another_thread_leaves_signals_to_the_main_one(tmp_path, train):
    before = signal.getsignal(signal.SIGINT)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(train(tmp_path / "run", steps="1")))
    thread.start()
    thread.join(PATIENCE)
    assert codes == [0]
    assert signal.getsignal(signal.SIGINT) is before
