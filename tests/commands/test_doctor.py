"""`rollwise doctor`: what it finds here, what it says of what is missing, and of settings files."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from rollwise.cli import main
from rollwise.commands import doctor as command
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

        monkeypatch.setattr(command, "version", found)

    return install


def test_what_works_here_fits_the_terminal(capsys, installed):
    installed(vllm=None)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "ok  models and learner" in shown
    assert "pip install 'rollwise[vllm]'" in shown
    folder = Path(re.search("docs/ and examples/ are in\n  (.*)\n", shown)[1])
    assert (folder / "docs/settings.md").exists() and (folder / "examples/loop.py").exists()


def test_it_loads_no_framework():
    code = (
        "import sys; from rollwise.cli import main; main(['doctor']); "
        "heavy = {'torch', 'transformers', 'scipy', 'matplotlib', 'vllm', 'trl'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_or_not_supported_is_said_with_what_to_type(doctor, installed, monkeypatch):
    installed(torch=None, tinker="0.38.0", vllm="0.31.0")
    monkeypatch.delenv(command.TINKER_KEY, raising=False)
    code, found = doctor()
    assert code == 1  # nothing can be trained
    assert found["models and learner"]["fix"] == "pip install 'rollwise[train]'"
    assert found["Tinker"]["fix"] == f"export {command.TINKER_KEY}=..."
    assert found["vllm"]["state"] == "broken"
    assert found["vllm"]["detail"].startswith("vllm 0.31.0 is not ")
    monkeypatch.setenv(command.TINKER_KEY, "key")
    installed(tinker="0.38.0", vllm=None)
    code, found = doctor()
    assert (code, found["Tinker"]["state"]) == (0, "works")
    installed(vllm="0.31.0")
    assert doctor()[0] == 1


def test_what_holds_in_programs_is_tried_out(doctor, monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(sandbox, "_find_bwrap", lambda: str(refusing))
    for found_state, detail in (
        ("broken", "bwrap: No permissions to create namespace"),
        ("missing", "no program bwrap"),
    ):
        code, found = doctor()
        assert code == 0  # only programs of a model need it
        assert found["sandbox"]["detail"] == detail
        assert found["sandbox"]["state"] == found["code"]["state"] == found_state
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
        ("steps = 1\n[methods.a]\nengine = {type = 'vllm'}\n[methods.b]", {"vllm": "missing"}),
        (
            "[records]\ntrackers = ['wandb']\n[verl]\ntrainer = {nnodes = 2}",
            {"verl": "missing", "Weights & Biases": "missing"},
        ),
        ("[pass_rates]\nalpha = 1\nbeta = 1\n[prices]\nmedian = 9\n[methods.a]", {}),
        ("[grading]\ntype = 'code'", {"code": "missing", "sandbox": "missing"}),
        ("[grading]\ntype = 'code'\nuncontained = true", {"code": "broken"}),  # sums are no tests
        ("[exit]\nkind = 'balanced'", {"settings.toml": "broken"}),
        ("[exit", {"settings.toml": "broken"}),
    ],
)
def test_what_a_settings_file_needs(doctor, installed, monkeypatch, settings, wanted):
    monkeypatch.setattr(sandbox, "_find_bwrap", no_bwrap)
    names = ("vllm", "peft", "wandb", "datasets", "tinker", "openai", "verl")
    installed(**dict.fromkeys(names))
    code, found = doctor(settings)
    states = {name: each["state"] for name, each in found.items()}
    assert {name: state for name, state in states.items() if state != "works"} == wanted
    assert code == bool(wanted)


@pytest.mark.parametrize(
    ("rows", "state", "detail"),
    [
        ('{"problem": "1+1", "answer": "2"}\n' * 2, "works", "2 read, 1 duplicate; 1"),
        (
            '{"question": "1+1", "answer": "so\\n#### 2"}\n',
            "works",
            "answer (after ####) -> answer",
        ),
        ('{"query": "1+1", "answer": "2"}\n', "broken", "which column has the problem?"),
        ('{"problem": "", "answer": ""}\n', "broken", "no usable problem: 1 read, 1 empty"),
    ],
)
def test_a_file_is_read_as_a_run_reads_it(doctor, tmp_path, rows, state, detail):
    data = tmp_path / "sums.jsonl"
    data.write_text(rows)
    one = doctor(f"[data]\ntrain = '{data}'\n[grading]\ntype = 'exact'")[1][str(data)]
    assert one["state"] == state and detail in one["detail"]


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        ("seeds = 2\n[methods.a]", "valid for `rollwise compare` with `--rewards`; to train, add"),
        ("[methods.a]\nexit = {type = 'balance'}", "method `a`: `exit.type` must be one of"),
        ("[data]\nsources = ['a.jsonl']", "valid for `rollwise prepare`"),
        (
            "steps = 1\n[engine]\ntype = 'server'\nbase_url = 'http://h/v1'\nmodel = 'm'",
            "`engine.type` must be `transformers` or `vllm` to train",
        ),
        ("[verl]\ntrainer = {nnodes = 2}", "valid for `rollwise verl`; the table [verl] itself is"),
    ],
)
def test_what_a_settings_file_is_valid_for(doctor, settings, detail):
    assert doctor(settings)[1]["settings.toml"]["detail"].startswith(detail)


OWN = """
[data]
train = "rows.jsonl"
[prompts]
batch_size = {batch}
[grading]
type = "{kind}"
{more}
[engine]
max_new_tokens = {tokens}
"""
GRADERS = """
from dataclasses import dataclass
import rollwise as rw

def broken(response, answer):
    return 1 / 0

def generous(response, answer):
    return 1.0

def judged(response, answer, prompt):
    return float(prompt.endswith("=") and response == answer)

@dataclass
class Keyed(rw.Uniform):
    def __post_init__(self):
        {}[self.keys[0]]

@dataclass
class Credit:
    def grade(self, response, answer):
        return 1.0 if response == f"<final>{answer}</final>" else 0.1
"""


@pytest.mark.parametrize(
    ("changed", "name", "state", "detail"),
    [
        ({}, "problems", "works", "36 to train on, 4 held out; the longest prompt has 6 tokens"),
        ({}, "exact", "works", "'2' is correct; an empty response is not"),
        (
            {"batch": 256},
            "problems",
            "broken",
            "there are 36 training problems, fewer than the 256",
        ),
        ({"tokens": 4096}, "problems", "broken", "none of 36 prompts fits: the shortest has"),
        ({"kind": "mine:Credit"}, "mine:Credit", "works", "no usual form of the reference answer"),
        ({"function": "broken"}, "mine:broken", "broken", "it failed on 6 of 6 responses"),
        (
            {"function": "judged"},
            "mine:judged",
            "works",
            "'2' is correct; an empty response is not",
        ),
        ({"batch": '8\ntype = "mine:Keyed"'}, "problems", "broken", "mine:Keyed: `__post_init__`"),
        ({"function": "generous"}, "mine:generous", "broken", "an empty response is correct by"),
    ],
)
def test_what_a_run_would_refuse_is_found_before(
    doctor, tmp_path, monkeypatch, changed, name, state, detail
):
    monkeypatch.chdir(tmp_path)
    rows = (f'{{"problem": "{i}+{i}=", "answer": "{2 * i}"}}\n' for i in range(1, 41))
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "mine.py").write_text(GRADERS)
    given = {"batch": 8, "kind": "exact", "more": "", "tokens": 16} | changed
    if function := given.pop("function", ""):
        given |= {"kind": "function", "more": f'function = "mine:{function}"'}
    code, found = doctor(OWN.format(**given))
    assert found[name]["detail"].startswith(detail)
    assert (found[name]["state"], code) == (state, int(state == "broken"))
