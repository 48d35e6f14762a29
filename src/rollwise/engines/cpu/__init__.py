"""The parts that make the built-in engine fast on a CPU; elsewhere it works without them.

Attention over pages is compiled with Numba (`pages`, `kernels`). This module decides whether that
applies to a model.
"""

import os
from importlib.util import find_spec

import torch
from transformers import PreTrainedModel


def is_compiled(model: PreTrainedModel) -> bool:
    """Say whether attention of `model` is compiled: float32 on a CPU, with Numba installed."""
    return (
        model.device.type == "cpu"
        and all(parameter.dtype == torch.float32 for parameter in model.parameters())
        and find_spec("numba") is not None
    )


def core_share(device: torch.device) -> int:
    """Count the operations that can run in parallel: a CPU's cores over threads of each, else 1.

    `OMP_NUM_THREADS` limits the cores that are counted.
    """
    if device.type != "cpu":
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most = int(os.environ.get("OMP_NUM_THREADS") or usable or 1)
    return max(1, min(usable or 1, most) // torch.get_num_threads())
