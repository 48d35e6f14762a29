"""What this process may use of the machine: processor cores and memory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use, at least 1.

    The affinity of the process and the CPU quotas of its control groups count, as of containers and
    batch systems. Those are read below `root`.
    """
    whole = os.cpu_count() or 1
    cores = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else whole]
    cores += [quota // period for quota, period in _limits(root, "cpu.max")]
    return max(1, min(cores))


def usable_memory(root: Path = Path("/")) -> int:
    """Return how many bytes of memory this process may use: the machine's, or a group's limit."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *(limit for (limit,) in _limits(root, "memory.max"))])


def _limits(root: Path, name: str) -> Iterator[list[int]]:
    """Yield the numbers in this file of the process's control groups (v2), where there is a limit.

    A group's limit also holds in the groups within it.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            mounted = root / "sys/fs/cgroup"
            inner = mounted / line.split(":", 2)[2].lstrip("/")
            for group in (inner, *(up for up in inner.parents if up.is_relative_to(mounted))):
                with suppress(OSError, ValueError):  # no such file, or "max", which is no limit
                    yield [int(number) for number in (group / name).read_text().split()]
