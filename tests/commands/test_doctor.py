"""`rollwise doctor`: what it finds here, what it says of what is missing, and of settings files."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from doctor_runs import run, state

from rollwise.cli import main
from rollwise.commands import check
from rollwise.grading import sandbox


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


def test_what_is_missing_is_said_with_what_to_type(capsys, installed, monkeypatch):
    installed(torch=None, tinker="0.38.0")
    monkeypatch.delenv(check.TINKER_KEY, raising=False)
    code, found = run(capsys, "--json")
    assert code == 1  # nothing can be trained
    assert state(found, "built-in model and learner")["fix"] == "pip install 'rollwise[train]'"
    assert state(found, "Tinker")["fix"] == f"export {check.TINKER_KEY}=..."
    monkeypatch.setenv(check.TINKER_KEY, "key")
    assert state(run(capsys, "--json")[1], "Tinker")["state"] == "works"


def test_what_holds_in_programs_is_tried_out(capsys, monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(sandbox, "_find_bwrap", lambda: str(refusing))
    for found_state, detail in (
        ("broken", "bwrap: No permissions to create namespace"),
        ("missing", "no program bwrap"),
    ):
        code, found = run(capsys, "--json")
        assert code == 0  # only programs of a model need it
        assert state(found, "sandbox")["detail"] == detail
        assert state(found, "sandbox")["state"] == state(found, "code")["state"] == found_state
        monkeypatch.setattr(sandbox, "_find_bwrap", no_bwrap)


def no_bwrap():
    raise FileNotFoundError("no program bwrap")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("[exit]\ntype = 'fixed_count'", {}),
        ("[engine]\ntype = 'vllm'", {"vllm": "missing"}),
        ("[model]\nlora_rank = 8", {"adapters (LoRA)": "missing"}),
        ("[records]\ntrackers = ['wandb']", {"Weights & Biases": "missing"}),
        ("[data]\ntrain = 'owner/name'", {"data sets of the hub": "missing"}),
        ("[data]\ntrain = 'sums.jsonl'", {"sums.jsonl": "missing"}),
        ("[model]\npath = './nowhere'", {"./nowhere": "missing"}),
        ("[backend]\ntype = 'tinker'", {"Tinker": "missing"}),
        ("steps = 1\n[methods.a]\nengine = {type = 'server'}\n[methods.b]", {"server": "missing"}),
        ("[verl]\ntrainer = {nnodes = 2}", {"verl": "missing"}),
        ("[pass_rates]\nalpha = 1\nbeta = 1\n[prices]\nmedian = 9\n[methods.a]", {}),
        ("[grading]\ntype = 'code'", {"code": "missing", "sandbox": "missing"}),
        ("[grading]\ntype = 'code'\nuncontained = true", {}),
        ("[exit]\nkind = 'balanced'", {"settings.toml": "broken"}),
        ("[exit", {"settings.toml": "broken"}),
    ],
)
def test_what_a_settings_file_needs(capsys, installed, monkeypatch, tmp_path, settings, wanted):
    monkeypatch.setattr(sandbox, "_find_bwrap", no_bwrap)
    names = ("vllm", "peft", "wandb", "datasets", "tinker", "openai", "verl")
    installed(**dict.fromkeys(names))
    (tmp_path / "settings.toml").write_text(settings)
    code, found = run(capsys, tmp_path / "settings.toml", "--json")
    checks = json.loads(found)["checks"]
    assert {each["name"]: each["state"] for each in checks if each["state"] != "works"} == wanted
    assert code == bool(wanted)


@pytest.mark.parametrize(
    ("rows", "state", "detail"),
    [
        ('{"problem": "1+1", "answer": "2"}\n' * 2, "works", "first rows: 2 read, 1 duplicate; 1"),
        ('{"question": "1+1", "answer": "2"}\n', "broken", "(question, answer) fit neither schema"),
        ('{"problem": "", "answer": ""}\n', "broken", "no problem to use: 1 read, 1 empty"),
    ],
)
def test_the_first_rows_of_a_file_are_read_as_a_run_reads_them(
    capsys, tmp_path, rows, state, detail
):
    data, settings = tmp_path / "sums.jsonl", tmp_path / "settings.toml"
    data.write_text(rows)
    settings.write_text(f"[data]\ntrain = '{data}'\n[grading]\ntype = 'exact'")
    found = json.loads(run(capsys, settings, "--json")[1])["checks"]
    [one] = [each for each in found if each["part"] == "data"]
    assert one["state"] == state and detail in one["detail"]


PLUGINS = """
from dataclasses import dataclass
import numpy as np
from rollwise.beliefs import Belief
from rollwise.environments import EpisodeEnvironment, Turn
@dataclass
class Good:
    def grade(self, response, answer):
        return float(response == answer)
def short(response):
    return 1.0
def wordy(response, answer):
    return "yes"
@dataclass(frozen=True)
class Game(EpisodeEnvironment):
    fails: str = ""
    def begin(self, opening):
        return {}[self.fails] if self.fails == "begin" else self
    def step(self, reply):
        return reply if self.fails else Turn(done=True)
@dataclass(eq=False)
class Guess(Belief):
    off: int = 0
    def believe(self, indices):
        return np.full(len(indices) + self.off, 0.5), np.ones(len(indices) + self.off)
    def learn(self, indices, correct, drawn):
        pass
"""


@pytest.mark.parametrize(
    ("settings", "state", "said"),
    [
        ("[grading]\ntype = 'doctored:Good'", "works", "reward 1"),
        (
            "[grading]\ntype = 'function'\nfunction = 'doctored:short'",
            "broken",
            "raised TypeError: short() takes 1 positional",
        ),
        (
            "[grading]\ntype = 'function'\nfunction = 'doctored:wordy'",
            "broken",
            "must return one finite number, got str",
        ),
        ("[episode]\ntype = 'doctored:Game'", "works", "answers"),
        ("[episode]\ntype = 'doctored:Game'\nfails = 'begin'", "broken", "raised KeyError"),
        ("[episode]\ntype = 'doctored:Game'\nfails = 'step'", "broken", "must return a rollwise"),
        ("[prompts]\ntype = 'worth'\n[belief]\ntype = 'doctored:Guess'", "works", "a simulated"),
        (
            "[prompts]\ntype = 'worth'\n[belief]\ntype = 'doctored:Guess'\noff = 1",
            "broken",
            "doctored:Guess: `believe`",
        ),
    ],
)
def test_plugins_are_called_once(capsys, tmp_path, monkeypatch, settings, state, said):
    (tmp_path / "doctored.py").write_text(PLUGINS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "doctored", raising=False)
    (tmp_path / "settings.toml").write_text(settings)
    code, found = run(capsys, tmp_path / "settings.toml", "--json")
    [called] = [c for c in json.loads(found)["checks"] if c["name"] == "your own, called once"]
    assert called["state"] == state and said in called["detail"]
    assert code == (state != "works")


def test_methods_without_a_length_are_valid_for_recorded_rewards(capsys, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text("[methods.a]\nexit = {type = 'balanced'}")
    code, found = run(capsys, rules, "--json")
    assert code == 0
    assert state(found, "rules.toml")["detail"] == (
        "valid for `rollwise plan` and `rollwise compare` with `--rewards`; to train, add `steps`, "
        "`tokens` or `seconds`"
    )
    rules.write_text("seeds = 2\n[methods.a]\nexit = {type = 'balanced'}")
    detail = state(run(capsys, rules, "--json")[1], "rules.toml")["detail"]
    assert detail.startswith("valid for `rollwise compare` with")  # a plan has no seeds
    rules.write_text("[methods.a]\nexit = {type = 'balance'}")
    code, found = run(capsys, rules, "--json")
    assert (code, state(found, "rules.toml")["state"]) == (1, "broken")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("seconds = 60", "`seconds` must be unset: verl's"),
        ("[prompts]\nbatch_sise = 8", "no setting `prompts.batch_sise`"),
    ],
)
def test_what_rollwise_verl_refuses_is_not_valid(capsys, installed, tmp_path, settings, said):
    """The same words as `rollwise verl` has, without verl installed."""
    installed(verl=None)
    file = tmp_path / "run.toml"
    file.write_text(f"{settings}\n[verl.trainer]\nnnodes = 2\n")
    code, found = run(capsys, file, "--json")
    assert code == 1
    one = state(found, "run.toml")
    assert one["state"] == "broken" and said in one["detail"]
    assert main(["verl", str(file), "--output", str(tmp_path / "run"), "--print"]) == 2
    refused = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert one["detail"] in refused


def test_what_a_run_by_verl_needs(capsys, installed, tmp_path):
    installed(verl="0.9.1", wandb=None)
    file = tmp_path / "run.toml"
    file.write_text("[records]\ntrackers = ['wandb']\n[verl.trainer]\nnnodes = 2\n")
    found = run(capsys, file, "--json")[1]
    detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
    assert state(found, "run.toml")["detail"] == detail
    assert state(found, "verl")["state"] == "works"
    assert state(found, "Weights & Biases")["state"] == "missing"
