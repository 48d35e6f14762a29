"""Seconds of the processor: what a run cost where the machine had other work as well."""

import os
from collections.abc import Iterator
from pathlib import Path

PROCESSES = Path("/proc")
"""Where Linux shows processes; elsewhere children count once they have ended."""


class ProcessorClock:
    """Measures the processor seconds of this process and of all that it has started."""

    def __init__(self) -> None:
        self._last = processor_seconds()

    def lap(self) -> float:
        """Return the seconds since the last lap, or since the clock was made."""
        before, self._last = self._last, processor_seconds()
        return max(0.0, self._last - before)


def processor_seconds() -> float:
    """Add up the processor seconds of this process, its threads, and its children so far."""
    return sum(os.times()[:4]) + sum(_seconds_of_children()) / os.sysconf("SC_CLK_TCK")


def _seconds_of_children() -> Iterator[int]:
    """Yield the ticks of each process below this one, those of its ended children included."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        # proc(5): the parent is field 4, and fields 14 to 17 are the times; ")" ends field 2.
        child = int(entry.parent.name), sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(child)
    below = [os.getpid()]
    while below:
        for pid, ticks in children.pop(below.pop(), ()):
            below.append(pid)
            yield ticks
