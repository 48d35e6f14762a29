"""`benchmarks/gpu.py` runs: its parts on a CPU, in their smallest form, in this process."""

import importlib.util
import json
import math
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
