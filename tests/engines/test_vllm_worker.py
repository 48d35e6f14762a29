"""vLLM's processes read weights from this one's memory, and end with it, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rollwise.engines.vllm_weights import SharedWeights
from rollwise.engines.vllm_worker import PARENT, WeightReader

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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_matrices_are_rounded_to_the_precision_of_their_reader():
    """Biases and norms, which may be held in more than that, are not."""
    weights = {"matrix": torch.randn(3, 4), "norm": torch.randn(4), "mask": torch.ones(2, 2) > 0}
    on_device = {name: tensor.cuda() for name, tensor in weights.items()}
    shared = SharedWeights(on_device, torch.bfloat16)
    read = torch.load(shared.path, weights_only=True)
    shared.close()
    assert torch.equal(read["matrix"], weights["matrix"].bfloat16())
    assert read["matrix"].dtype == torch.bfloat16
    assert torch.equal(read["norm"].cpu(), weights["norm"])
    assert read["mask"].dtype == torch.bool


CHILD = "import rollwise.engines.vllm_worker, time; print('up', flush=True); time.sleep(600)"


def test_a_worker_ends_with_the_process_that_started_vllm():
    parent = subprocess.Popen(["sleep", "600"])
    command, variables = [sys.executable, "-c", CHILD], os.environ | {PARENT: str(parent.pid)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as worker:
        assert worker.stdout.readline() == b"up\n"
        assert worker.poll() is None
        parent.kill()
        parent.wait()
        assert worker.wait(60) == 1
    assert subprocess.run(command, env=variables, check=False).returncode == 1, "it ended before"
