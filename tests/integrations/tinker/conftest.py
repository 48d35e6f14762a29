"""A local server that speaks Tinker's protocol, in a process of its own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollwise.cli import main

SERVER = Path(__file__).parent / "server.py"
KEY = "tml-of-the-tests"

if importlib.util.find_spec("tinker") is None:
    collect_ignore = ["test_tinker_backend.py"]


@pytest.fixture(scope="session")
def port():
    pytest.importorskip("tinker")
    command, environment = [sys.executable, str(SERVER)], os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture
def tinker_url(port, monkeypatch):
    """The address of a server, which the SDK finds in the environment."""
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("TINKER_BASE_URL", url)
    return url


@pytest.fixture
def train_at_tinker(monkeypatch):
    """Runs `rollwise train` without its report: `train_at_tinker(folder, *arguments, options)`."""
    monkeypatch.setattr("rollwise.commands.train.write_report", lambda path: path / "report.html")
    monkeypatch.setattr("rollwise.commands.train.LiveReport.step_ended", lambda report: None)

    def run(folder, *arguments):
        *arguments, options = arguments
        pairs = [part for pair in options.items() for part in pair]
        return main(["train", *arguments, "--output", str(folder), *pairs])

    return run


@pytest.fixture
def metrics_of():
    """Reads a run's metrics."""

    def read(folder):
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    return read
