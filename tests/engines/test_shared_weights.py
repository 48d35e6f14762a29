"""Weights in memory, read by another process as from a file."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rollwise.engines.shared_weights import SharedWeights

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "bool"])
def test_another_process_reads_every_bit(dtype, tmp_path):
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
    subprocess.run(["cp", shared.path, tmp_path / "copy"], check=True)
    shared.close()
    assert not Path(shared.path).exists()
    read = load_file(tmp_path / "copy")
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == tensor.dtype
