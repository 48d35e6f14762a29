"""How many operations a device can run side by side."""

import os

import torch


def core_share(device: torch.device) -> int:
    """Count the operations that can run in parallel: a CPU's cores over threads of each, else 1.

    `OMP_NUM_THREADS` limits the cores that are counted.
    """
    if device.type != "cpu":
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most = int(os.environ.get("OMP_NUM_THREADS") or usable or 1)
    return max(1, min(usable or 1, most) // torch.get_num_threads())
