"""`rollwise doctor`: what it finds here, what it says of what is missing, and of settings files."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version

import pytest
from configurations import QWEN

from rollwise.cli import main
from rollwise.commands import doctor, doctor_memory
from rollwise.errors import ConfigError
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

        monkeypatch.setattr(doctor, "version", found)

    return install


def run(capsys, *arguments):
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


def state(found, name):
    [check] = [check for check in json.loads(found)["checks"] if check["name"] == name]
    return check


def test_what_works_here_fits_the_terminal(capsys, installed):
    installed(vllm=None)
    code, shown = run(capsys)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "ok  built-in model and learner" in shown
    assert "pip install 'rollwise[vllm]'" in shown


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
    monkeypatch.delenv(doctor.TINKER_KEY, raising=False)
    assert state(run(capsys, "--json")[1], "Tinker")["fix"] == f"export {doctor.TINKER_KEY}=..."
    monkeypatch.setenv(doctor.TINKER_KEY, "key")
    assert state(run(capsys, "--json")[1], "Tinker")["state"] == "works"


def test_what_holds_in_programs_is_tried_out(capsys, monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(doctor, "memory_group", lambda limit: nullcontext(None))
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
    assert state(found, "memory (control group)")["detail"] == "bounded for each process alone"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("[exit]\ntype = 'fixed_count'", {}),
        ("[engine]\ntype = 'vllm'", {"vllm": "missing"}),
        ("[model]\nlora_rank = 8", {"adapters (LoRA)": "missing"}),
        ("[learner]\noptimizer = 'adamw_8bit'", {"optimizers in 8 bits": "missing"}),
        ("[records]\ntrackers = ['wandb']", {"Weights & Biases": "missing"}),
        ("[data]\ntrain = 'owner/name'", {"data sets of the hub": "missing"}),
        ("[data]\ntrain = 'sums.jsonl'", {"sums.jsonl": "missing"}),
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
    def none():
        raise FileNotFoundError("no program bwrap")

    monkeypatch.setattr(sandbox, "_find_bwrap", none)
    names = ("vllm", "peft", "bitsandbytes", "wandb", "datasets", "tinker", "openai", "verl")
    installed(**dict.fromkeys(names))
    (tmp_path / "settings.toml").write_text(settings)
    code, found = run(capsys, tmp_path / "settings.toml", "--json")
    checks = json.loads(found)["checks"]
    assert {each["name"]: each["state"] for each in checks if each["state"] != "works"} == wanted
    assert code == bool(wanted)


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
        ("[group]\nunresolved = 'refill'", "`group.unresolved` must be `drop` or `keep` in verl"),
        ("[learner]\nresponse_cap = 2", "`learner.response_cap` must be `0` in verl"),
        ("seconds = 60", "`seconds` must be `unset` in verl"),
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
    check = state(found, "run.toml")
    assert check["state"] == "broken" and said in check["detail"]
    assert main(["verl", str(file), "--output", str(tmp_path / "run"), "--print"]) == 2
    refused = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert check["detail"] in refused


def test_what_a_run_by_verl_needs(capsys, installed, tmp_path):
    installed(verl="0.9.1", wandb=None)
    file = tmp_path / "run.toml"
    file.write_text("[records]\ntrackers = ['wandb']\n[verl.trainer]\nnnodes = 2\n")
    found = run(capsys, file, "--json", "--gpu-gb", "80")[1]
    detail = "valid for `rollwise verl`; the table [verl] itself is not checked"
    assert state(found, "run.toml")["detail"] == detail
    assert state(found, "verl")["state"] == "works"
    assert state(found, "Weights & Biases")["state"] == "missing"
    [check] = memory(found)
    assert check["state"] == "missing" and check["detail"].startswith("not planned: how verl")


def test_the_examples_are_valid(root, capsys):
    for file in (root / "examples").rglob("*.toml"):
        assert state(run(capsys, file, "--json")[1], file.name)["state"] == "works", file


@pytest.fixture
def large(tmp_path):
    """The folder of a model of 1.5 billion, and a file with settings to train it."""
    (tmp_path / "large").mkdir()
    (tmp_path / "large/config.json").write_text(json.dumps(QWEN))
    settings = tmp_path / "settings.toml"
    settings.write_text(f"[model]\npath = '{tmp_path / 'large'}'\n[data]\ntrain = 'x.jsonl'")
    return settings


def memory(found):
    return [check for check in json.loads(found)["checks"] if check["part"] == "memory"]


def test_a_run_that_does_not_fit_is_told_what_to_change(capsys, large, monkeypatch):
    monkeypatch.setattr(doctor_memory, "gpu_here", lambda device: None)
    assert memory(run(capsys, large, "--json")[1]) == []  # no GPU is known
    code, found = run(capsys, large, "--json", "--gpu-gb", "24")
    [check] = memory(found)
    assert code == 1
    assert check["state"] == "broken" and check["name"] == "GPU of 24 GB"
    assert check["detail"].startswith("does not fit: ")
    assert "change model.gradient_checkpointing = true\n" in check["fix"]
    [check] = memory(run(capsys, large, "--json", "--gpu-gb", "400")[1])
    assert check["state"] == "works" and check["detail"].endswith(
        " of 400 GB planned (docs/gpu.md)"
    )
    monkeypatch.setattr(doctor_memory, "gpu_here", lambda device: 400.0)
    assert memory(run(capsys, large, "--json")[1]) == [check]


def test_a_model_of_unknown_size_is_planned_if_its_configuration_is_named(
    capsys, large, tmp_path, monkeypatch
):
    monkeypatch.setattr(doctor_memory, "gpu_here", lambda device: 24.0)
    named = tmp_path / "hub.toml"
    named.write_text("[model]\npath = 'nobody/nothing'\n[data]\ntrain = 'x.jsonl'")
    assert memory(run(capsys, named, "--json")[1]) == []
    [check] = memory(run(capsys, named, "--json", "--gpu-gb", "80")[1])
    assert check["state"] == "missing" and "no config.json of nobody/nothing" in check["detail"]
    [check] = memory(run(capsys, named, "--json", "--memory", tmp_path / "large")[1])
    assert check["state"] == "broken" and check["name"] == "GPU of 24 GB"
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    [check] = memory(run(capsys, named, "--json", "--memory", tmp_path)[1])
    assert check["state"] == "missing" and "'mamba' is not known" in check["detail"]


def test_the_memory_of_a_gpu_is_read_from_its_driver(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 24564\necho 81559\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert [doctor_memory.gpu_here(device) for device in ("auto", "cuda:1", "cuda:2")] == [
        25.8,
        85.5,
        None,
    ]
    program.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert doctor_memory.gpu_here("auto") is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--gpu-gb", "24"], "go with a settings file"), (["x.toml", "--gpu-gb", "0"], "above 0")],
)
def test_a_gpu_that_cannot_be_planned_for_is_refused(capsys, arguments, said):
    assert main(["doctor", *arguments]) == ConfigError.exit_code
    assert said in capsys.readouterr().err
