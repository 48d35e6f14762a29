"""Weights in memory, read by another process as from a file."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rollwise.engines.shared_weights import SharedWeights, WeightReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


def test_another_process_reads_every_bit(tmp_path):
    """Also of tensors that are empty, transposed, parts of others, or in it twice."""
    torch.manual_seed(0)
    whole = torch.randn(6, 4)
    weights = {
        "whole": torch.nn.Parameter(whole),
        "again": whole,
        "transposed": whole.T,
        "part": whole[1:3, 2:],
        "none": whole[:0],
        "half": whole.to(torch.bfloat16),
        "mask": whole > 0,
    }
    shared = SharedWeights(weights)
    subprocess.run(["cp", shared.path, tmp_path / "copy"], check=True)
    shared.close()
    assert not Path(shared.path).exists()
    read = {}
    reader = WeightReader()
    reader.reload_weights = lambda weights_iterator: read.update(weights_iterator)
    reader.read_weights(str(tmp_path / "copy"))
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == tensor.dtype
