"""`rollwise train` that is stopped, killed or damaged, and resumes from its last checkpoint."""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from forked import Command

from rollwise.cli import main
from rollwise.records import RunFolder
from rollwise.training.learner import Learner


@pytest.fixture(scope="module")
def eight_steps(tmp_path_factory, tiny_options):
    """The folder of a run of eight steps that is evaluated at its ends alone."""
    folder = tmp_path_factory.mktemp("runs") / "eight"
    options = tiny_options(steps="8", evaluation__every="0")
    assert main(["train", "--output", str(folder), *options]) == 0
    return folder


def test_a_sampler_resumes_as_if_it_had_never_stopped(tmp_path, train, state_of):
    """With several updates a step and an entropy bonus."""
    changed = {
        "prompts__type": "cdas",
        "prompts__form": "calibrated",
        "prompts__visits": "9",
        "group__zero_variance": "refill",
        "evaluation__every": "2",
        "learner__mini_batches": "2",
        "learner__entropy_coefficient": "0.01",
        "learner__warmup_updates": "5",
    }
    assert train(tmp_path / "whole", **changed) == 0
    assert train(tmp_path / "run", **changed | {"steps": "2"}) == 0
    assert train(tmp_path / "run", "--resume", **changed) == 0
    assert state_of(tmp_path / "run") == state_of(tmp_path / "whole")
    (resumed,) = RunFolder(tmp_path / "run").read_about("resumed")  # which the report shows
    assert (resumed["step"], bool(resumed["command"]), bool(resumed["date"])) == (2, True, True)


@pytest.mark.usefixtures("train")  # which leaves the report out
@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux alone")
@pytest.mark.parametrize(
    ("number", "code_wanted", "said"),
    [
        (signal.SIGINT, 130, "stopping after this step"),
        (signal.SIGTERM, 143, "SIGTERM: saving the run"),
    ],
)
def test_a_run_that_is_asked_to_stop_is_saved_and_resumes_to_the_same_end(
    tmp_path, eight_steps, tiny_options, number, code_wanted, said, assert_same_run
):
    """All its processes get the signal, as from a terminal, and from most clusters."""
    folder = tmp_path / "run"
    metrics = folder / "metrics.jsonl"
    options = tiny_options(steps="8", evaluation__every="0")
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
    assert_same_run(folder, eight_steps)


@pytest.mark.parametrize("noticed", ["when it is saved", "when it draws"])
def test_a_checkpoint_from_before_the_policy_broke_is_kept(
    tmp_path, train, monkeypatch, noticed, screen
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
    message = screen()
    assert "step 3: the " in message
    assert f"the last checkpoint, {folder / 'checkpoints' / 'step-000002'}, predates it" in message
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
        ("rollwise.training.loop.learn", 2, ["--resume"]),
        ("rollwise.training.loop.save_checkpoint", 2, []),
        ("rollwise.commands.train.seal", 1, []),
        ("rollwise.commands.train.write_report", 1, []),
    ],
    ids=["evaluation", "step 2, resume", "second save", "checksums", "report"],
)
def test_one_command_begins_resumes_and_says_that_all_is_done(
    tmp_path, train, whole, monkeypatch, capsys, function, call, how, assert_same_run
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
    assert_same_run(folder, whole)
    assert RunFolder(folder).visits.read().equals(RunFolder(whole).visits.read())
    assert not list(folder.rglob(".*"))
    assert "  summary.json\n" in (folder / "checksums.txt").read_text()
    summaries = [json.loads((f / "summary.json").read_text()) for f in (folder, whole)]
    assert summaries[0] | {"seconds": 0} == summaries[1] | {"seconds": 0}
    before = (folder / "summary.json").stat().st_mtime_ns
    capsys.readouterr()
    assert train(folder, *how, **settings) == 0
    assert f"the run in {folder} is done" in "".join(capsys.readouterr().out.split("\n"))
    assert (folder / "summary.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damaged", ["metrics.jsonl", "samples", "visits"])
def test_records_that_were_damaged_since_the_run_ended_are_named(
    tmp_path, train, whole, caplog, damaged
):
    """Where it is trained further, also after the command was repeated as it was."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    file = folder / damaged
    if file.is_dir():
        [file] = file.iterdir()
        file.unlink()
    else:
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    for steps in ("4", "5"):
        assert train(folder, steps=steps, evaluation__every="2") == 0
    assert f"{file.relative_to(folder)} is missing, or was modified" in caplog.text


def test_what_was_damaged_since_is_noticed_on_resuming(
    tmp_path, train, whole, monkeypatch, metrics_of, screen
):
    """A run that is continued has no summary until its new end."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    settings = {"steps": "5", "evaluation__every": "2"}
    saved = folder / "checkpoints" / "step-000004" / "run" / "config.json"
    content = saved.read_bytes()
    saved.write_bytes(content.replace(b"timeout", b"tiieout"))
    assert train(folder, "--resume", **settings) == 2
    assert "step-000004 is damaged: run/config.json differ" in screen()
    saved.write_bytes(content)

    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:3]))
    kill_in(monkeypatch, "rollwise.training.loop.learn", 1)
    with pytest.raises(Killed):
        train(folder, **settings)
    assert not (folder / "summary.json").exists()
    assert train(folder, "--resume", **settings) == 0
    assert metrics_of(folder)[:5] == metrics_of(whole)


def test_a_run_that_lost_its_checkpoints_does_not_start_over(tmp_path, train, whole, screen):
    """Neither one that is done nor one that was stopped past its first checkpoint."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("checkpoints"))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for _ in range(2):
        assert train(folder, steps="5", evaluation__every="2", checkpoint__every="2") == 2
        assert "has done 4 steps, and has no checkpoint to go on from" in screen()
        assert {file: file.read_bytes() for file in before} == before
        config = json.loads((folder / "config.json").read_text())
        config["config"]["checkpoint"]["every"] = 2
        config.pop("checksum", None)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "summary.json").unlink(missing_ok=True)
        before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_keeps_its_settings(whole, train, state_of, screen):
    before = state_of(whole)
    assert train(whole, "--resume", evaluation__every="2", exit__type="fixed_count") == 2
    message = screen()
    assert "`exit.type` cannot change" in message
    assert "has 'balanced', and this command 'fixed_count' (given, or by default)" in message
    assert train(whole, "--resume", steps="1") == 2
    assert "`steps` must be at least" in screen()
    assert (whole / "checksums.txt").exists()
    assert state_of(whole) == before


def test_adapters_are_trained_saved_and_resumed(tmp_path, train, state_of):
    pytest.importorskip("peft")
    settings = {"model__lora_rank": "4", "learner__learning_rate": "0.01", "evaluation__every": "1"}
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert train(whole, **settings, steps="2") == 0
    assert train(folder, **settings, steps="1") == 0
    early = state_of(folder)
    assert train(folder, "--resume", **settings, steps="2") == 0
    assert state_of(folder) == state_of(whole)
    adapters = Path("model/adapter_model.safetensors")
    assert Path("model/model.safetensors") not in early
    assert early[adapters] != state_of(folder)[adapters]
