"""`benchmarks/gpu.py` runs: its parts on a CPU, in their smallest form, in this process."""

import importlib.util
import json
import math
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[1] / "benchmarks/gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        ("attention", {"difference", "difference_of_gradients", "seconds_ratio"}),
        ("packing", {"seconds_ratio", "packed_tokens_s"}),
        ("logits", {"seconds_ratio"}),
        ("decoding", {"built_in_ratio", "generate_tokens_s"}),
        ("handing", set()),
        ("sleep", set()),
    ],
)
def test_a_part_gives_its_figures(benchmark, capsys, part, figures):
    assert benchmark.main(["--here", "--device", "cpu", "--quick", "--part", part]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found.keys() == figures
    assert all(math.isfinite(value) and value > 0 for value in found.values())
    if part == "attention":
        assert max(found["difference"], found["difference_of_gradients"]) < 1e-4


def test_a_part_that_fails_is_named_and_the_others_go_on(benchmark, capsys, monkeypatch):
    def run(command, **_):
        part = command[command.index("--part") + 1]
        if part == "packing":
            return subprocess.CompletedProcess(command, 1, "", "CUDA error: out of memory")
        return subprocess.CompletedProcess(command, 0, 'noise\n{"seconds_ratio": 2.0}\n', "")

    monkeypatch.setattr(benchmark.subprocess, "run", run)
    parts = ["--part", "packing", "--part", "logits"]
    assert benchmark.main(["--device", "cpu", "--quick", *parts]) == 1
    shown = capsys.readouterr()
    assert "packing failed:\nCUDA error: out of memory" in shown.err
    last = json.loads(shown.out.splitlines()[-1])
    assert last == {"device": "CPU", "failed": ["packing"], "logits_seconds_ratio": 2.0}
