"""Tiny random models, and a run that takes a second."""

import json
from pathlib import Path

import pytest
import tiny_models

from rollwise.cli import main
from rollwise.records import RunFolder

TINY = {
    "--method": "reinforce_ada",
    "--steps": "4",
    "--prompts.batch_size": "4",
    "--evaluation.problems": "8",
    "--evaluation.samples": "2",
    "--data.problems": "32",
    "--data.max_terms": "4",
    "--schedule.rounds": "2",
    "--engine.max_new_tokens": "16",
}


@pytest.fixture(scope="session")
def tokenizer():
    """The built-in model's: 17 tokens, 0 pads and 1 ends a response."""
    return tiny_models.make_tokenizer()


@pytest.fixture(scope="session")
def make_model():
    """Makes random models of 17 tokens whose distributions are far from uniform."""
    return tiny_models.make_model


@pytest.fixture
def model(make_model):
    return make_model()


def options(**changed):
    """The options of a tiny run, some of them changed: `learner__mini_batches="2"`."""
    named = {f"--{name.replace('__', '.')}": value for name, value in changed.items()}
    return [part for pair in (TINY | named).items() for part in pair]


@pytest.fixture(scope="session")
def tiny_options():
    return options


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder of a run of four steps that was not interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["train", "--output", str(folder), *options(evaluation__every="2")]) == 0
    return folder


@pytest.fixture
def train(monkeypatch):
    """Runs `rollwise train` with tiny settings: `train(folder, *arguments, **settings)`.

    The report is left out: its plots take longer than the run.
    """
    monkeypatch.setattr("rollwise.commands.train.write_report", lambda path: path / "report.html")
    monkeypatch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)

    def run(folder: Path, *arguments: str, **changed: str) -> int:
        return main(["train", "--output", str(folder), *arguments, *options(**changed)])

    return run


def read_json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


TIMES = ("elapsed", "seconds", "cpu_seconds")


def without_times(lines: list[dict]) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


@pytest.fixture
def metrics_of():
    """Reads a run's metrics: `metrics_of(folder)`; times are left out."""
    return lambda folder: without_times(read_json_lines(folder / "metrics.jsonl"))


def content_of(file: Path) -> bytes | dict:
    """Read a file to the bit; peft writes the layers it adapts in no particular order."""
    if file.name != "adapter_config.json":
        return file.read_bytes()
    settings = json.loads(file.read_text(encoding="utf-8"))
    return settings | {"target_modules": sorted(settings["target_modules"])}


@pytest.fixture
def state_of():
    """Reads all that a run has become, times apart: `state_of(folder)`."""

    def state(folder: Path) -> dict:
        newest = max((folder / "checkpoints").glob("step-*"))
        files = {p.relative_to(newest): p for p in newest.rglob("*") if p.is_file()}
        # The records have times, and therefore other checksums.
        alike = {name for name in files if name.parts[0] not in ("run", "checksums.txt")}
        contents = {name: content_of(files[name]) for name in alike}
        return contents | {
            "step": newest.name,
            "metrics": without_times(read_json_lines(folder / "metrics.jsonl")),
        }

    return state


@pytest.fixture
def assert_same_run(state_of):
    """Asserts that two runs have become the same, what they recorded included."""

    def check(folder: Path, other: Path) -> None:
        assert state_of(folder) == state_of(other)
        assert RunFolder(folder).samples.read().equals(RunFolder(other).samples.read())

    return check


@pytest.fixture
def screen(capsys):
    """What a command has shown: all its words since last asked."""
    return lambda: " ".join("".join(capsys.readouterr()).split())
