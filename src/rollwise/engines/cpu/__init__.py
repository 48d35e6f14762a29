"""The parts that make the built-in engine fast on a CPU; elsewhere it works without them.

Attention over pages is compiled with Numba (`pages`, `kernels`), and responses are drawn in several
processes (`processes`). This module decides what applies to a model; beside it, the rest of the
engine imports `SplitBatch` alone.
"""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from rollwise.engines.cpu.pages import PagedCache


def is_compiled(model: PreTrainedModel) -> bool:
    """Say whether attention of `model` is compiled: float32 on a CPU, with Numba installed."""
    return (
        model.device.type == "cpu"
        and all(parameter.dtype == torch.float32 for parameter in model.parameters())
        and find_spec("numba") is not None
    )


def paged_cache(slots: int) -> "PagedCache":
    """Make the KV cache for a compiled model."""
    from rollwise.engines.cpu.pages import PagedCache  # Numba takes long to import

    return PagedCache(slots)


def process_count(device: torch.device) -> int:
    """Count the processes to draw with: one a core on a CPU under Linux, else 1.

    Forking needs Linux, because system libraries elsewhere do not survive it, and operations of one
    thread each, because only one thread survives it.
    """
    return core_share(device) if sys.platform == "linux" and torch.get_num_threads() == 1 else 1


def core_share(device: torch.device) -> int:
    """Count the operations that can run in parallel: a CPU's cores over threads of each, else 1.

    `OMP_NUM_THREADS` limits the cores that are counted.
    """
    if device.type != "cpu":
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most = int(os.environ.get("OMP_NUM_THREADS") or usable or 1)
    return max(1, min(usable or 1, most) // torch.get_num_threads())
