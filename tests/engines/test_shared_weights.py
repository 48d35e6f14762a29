"""Weights in memory, read by another process as from a file."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rollwise.engines.shared_weights import SharedWeights

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

SUMS = """
import sys
from safetensors.torch import load_file
print({name: float(t.double().sum()) for name, t in sorted(load_file(sys.argv[1]).items())})
"""


def test_another_process_reads_what_was_written():
    torch.manual_seed(0)
    weights = {"a": torch.randn(3, 5), "b": torch.arange(7), "c": torch.randn(2).bfloat16()}
    shared = SharedWeights(weights)
    command = [sys.executable, "-c", SUMS, shared.path]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert eval(found) == {name: float(t.double().sum()) for name, t in weights.items()}
    shared.close()
    assert not Path(shared.path).exists()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "bool"])
def test_every_bit_is_kept(dtype):
    """Also of tensors that are empty, transposed, parts of others, or in it twice."""
    torch.manual_seed(0)
    whole = (4 * torch.randn(6, 4)).to(getattr(torch, dtype))
    weights = {
        "whole": whole.requires_grad_(whole.is_floating_point()),
        "again": whole,
        "transposed": whole.T,
        "part": whole[1:3, 2:],
        "one": whole[0, 0],
        "none": whole[:0],
    }
    shared = SharedWeights(weights)
    read = load_file(shared.path)
    shared.close()
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == tensor.dtype
