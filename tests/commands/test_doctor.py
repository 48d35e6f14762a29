"""`rollwise doctor`: what it finds here, what it says of what is missing, and of settings files."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from rollwise.cli import main
from rollwise.commands import check, doctor_try
from rollwise.errors import ConfigError
from rollwise.grading import sandbox

TRIED = """
exit = {type = 'balanced'}
schedule = {size = 2, rounds = 2}
prompts = {batch_size = 4}
data = {problems = 32, max_terms = 4}
engine = {max_new_tokens = 12}
evaluation = {problems = 4, samples = 2}
"""
"""A run of the built-in model."""


@pytest.fixture
def installed(monkeypatch):
    """Set the releases that are found; None for a package that is not installed."""

    def install(**releases):
        def found(package):
            release = releases.get(package.replace("-", "_"), version)
            if release is None:
                raise PackageNotFoundError(package)
            return version(package) if release is version else release

        monkeypatch.setattr(check, "version", found)

    return install


def run(capsys, *arguments):
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


def state(found, name):
    [one] = [one for one in json.loads(found)["checks"] if one["name"] == name]
    return one


def test_what_works_here_fits_the_terminal(capsys, installed):
    installed(vllm=None)
    code, shown = run(capsys)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "ok  built-in model and learner" in shown
    assert "pip install 'rollwise[vllm]'" in shown
    folder = Path(re.search("docs/ and examples/ are in\n  (.*)\n", shown)[1])
    assert (folder / "docs/settings.md").exists() and (folder / "examples/loop.py").exists()


def test_it_loads_no_framework():
    code = (
        "import sys; from rollwise.cli import main; main(['doctor']); "
        "heavy = {'torch', 'transformers', 'numba', 'scipy', 'matplotlib', 'vllm', 'trl'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_release_that_is_not_admitted_is_an_error_and_a_missing_package_is_not(capsys, installed):
    installed(vllm="0.31.0")
    code, found = run(capsys, "--json")
    assert code == 1 and json.loads(found)["ok"] is False
    vllm = state(found, "vllm")
    assert vllm["state"] == "broken" and vllm["detail"].startswith("vllm 0.31.0 is not ")
    installed(vllm=None)
    code, found = run(capsys, "--json")
    assert code == 0 and json.loads(found)["ok"] is True
    assert state(found, "vllm")["state"] == "missing"


def test_without_torch_nothing_can_be_trained(capsys, installed):
    installed(torch=None)
    code, found = run(capsys, "--json")
    assert code == 1
    assert state(found, "built-in model and learner")["fix"] == "pip install 'rollwise[train]'"


def test_tinker_needs_its_key(capsys, installed, monkeypatch):
    installed(tinker="0.38.0")
    monkeypatch.delenv(check.TINKER_KEY, raising=False)
    assert state(run(capsys, "--json")[1], "Tinker")["fix"] == f"export {check.TINKER_KEY}=..."
    monkeypatch.setenv(check.TINKER_KEY, "key")
    assert state(run(capsys, "--json")[1], "Tinker")["state"] == "works"


def test_what_holds_in_programs_is_tried_out(capsys, monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(sandbox, "_find_bwrap", lambda: str(refusing))
    code, found = run(capsys, "--json")
    assert code == 0  # only programs of a model need it
    assert state(found, "sandbox")["detail"] == "bwrap: No permissions to create namespace"
    assert state(found, "sandbox")["state"] == state(found, "code")["state"] == "broken"

    def none():
        raise FileNotFoundError("no program bwrap")

    monkeypatch.setattr(sandbox, "_find_bwrap", none)
    code, found = run(capsys, "--json")
    assert code == 0
    assert state(found, "sandbox")["detail"] == "no program bwrap"
    assert state(found, "sandbox")["state"] == state(found, "code")["state"] == "missing"


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ("[exit]\ntype = 'fixed_count'", 0, "valid for `rollwise train`"),
        ("samples = 4\nbenchmarks = ['math500']\nmodel.path = 'x'", 0, "for `rollwise evaluate`"),
        ("[selection]\nrange = 'easy'", 0, "for `rollwise prepare`"),
        ("steps = 1\n[methods.a]\nengine = {type = 'server'}", 0, "for `rollwise compare`"),
        ("[methods.a]\nexit = {type = 'balanced'}", 0, "for `rollwise compare`"),
        ("[methods.a]\nexit = {type = 'balance'}", 1, "method `a`: `exit.type`: should be one of"),
        ("[pass_rates]\nalpha = 1\nbeta = 1\n[prices]\nmedian = 9\n[methods.a]", 0, "plan`"),
        ("[verl]\ntrainer = {nnodes = 2}", 1, "for `rollwise verl`, which checks it"),
        ("[exit]\nkind = 'balanced'", 1, "there is no setting `exit.kind`"),
        ("[exit", 1, "is not TOML"),
    ],
)
def test_what_a_settings_file_is_valid_for(capsys, tmp_path, settings, code, said):
    (tmp_path / "settings.toml").write_text(settings)
    ended, found = run(capsys, tmp_path / "settings.toml", "--json")
    one = state(found, "settings.toml")
    assert said in one["detail"]
    assert (ended, one["state"]) == (code, "broken" if code else "works")
    assert state(found, "built-in model and learner")["state"] == "works"


def test_the_examples_are_valid(root, capsys):
    for file in {*(root / "examples").rglob("*.toml")} - {*(root / "examples/verl").glob("*")}:
        assert state(run(capsys, file, "--json")[1], file.name)["state"] == "works", file


def test_a_try_takes_the_largest_step_and_leaves_nothing(capsys, tmp_path, monkeypatch):
    """Four prompts in two rounds of two draws; each response has all of its 12 tokens."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text(TRIED)
    code, found = run(capsys, file, "--json", "--try")
    assert code == 0, found
    one = state(found, "one step")
    assert "4 prompts, 16 responses of 12 tokens: " in one["detail"]
    assert 0.05 < float(one["detail"].split()[0]) < 50
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


@pytest.mark.parametrize(
    "settings",
    [
        "exit = {type = 'fixed_count', samples = 2}\ngroup = {size = 2}",
        "allocation = {type = 'gvm'}",
        "schedule = {type = 'streamed', max_samples = 5}",
        "exit = {type = 'fixed_count', samples = 1}\nadvantage = {baseline = 'belief'}",
    ],
)
def test_runs_of_any_kind_can_be_tried(capsys, tmp_path, settings):
    base = TRIED.replace("exit = {type = 'balanced'}\nschedule = {size = 2, rounds = 2}\n", "")
    (tmp_path / "run.toml").write_text(f"{settings}\n{base}")
    code, found = run(capsys, tmp_path / "run.toml", "--json", "--try")
    assert code == 0 and " responses of 12 tokens" in state(found, "one step")["detail"], found


def test_memory_that_does_not_suffice_is_said_with_what_to_change(capsys, tmp_path, monkeypatch):
    def fail(run):
        raise MemoryError("no 12 GB")

    monkeypatch.setattr(doctor_try, "largest_step", fail)
    (tmp_path / "run.toml").write_text(TRIED)
    code, found = run(capsys, tmp_path / "run.toml", "--json", "--try")
    one = state(found, "one step")
    assert (code, one["state"]) == (1, "broken")
    assert "there is not enough memory" in one["detail"] and "12 GB" in one["detail"]
    assert "model.gradient_checkpointing" in one["fix"]
    (tmp_path / "run.toml").write_text(TRIED.replace("max_terms = 4", "train = 'no.jsonl'"))
    code, found = run(capsys, tmp_path / "run.toml", "--json", "--try")
    assert code == 1 and "no.jsonl" in state(found, "one step")["detail"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("steps = 1\n[methods.a]", "the file is for `compare`"),
        ("backend = {type = 'tinker'}", "this model is at Tinker"),
    ],
)
def test_what_cannot_be_tried_is_said(capsys, tmp_path, settings, said):
    (tmp_path / "run.toml").write_text(settings)
    code, found = run(capsys, tmp_path / "run.toml", "--json", "--try")
    assert code == 1 and said in state(found, "run.toml")["detail"]
    assert main(["doctor", "--try"]) == ConfigError.exit_code
    assert "--try goes with a settings file" in capsys.readouterr().err
