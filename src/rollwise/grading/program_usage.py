"""What a program takes: time, however busy the machine is, and memory of all its processes."""

import os
import time
from pathlib import Path
from typing import NamedTuple

BUSY = 10
"""How many times its limit a program may take by the clock, on a machine too busy to run it."""

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Used(NamedTuple):
    """What a process and its descendants took, even those that ended, and the memory they hold.

    It is active if a thread runs, or waits for a processor or a disk. (psutil tells that of a
    process's first thread alone, which sleeps while it waits for those that compute.)
    """

    seconds: float
    is_active: bool
    memory: int


class ProgramUsage:
    """Holds a process and all that it starts to limits on time and memory.

    While one of them computes, or waits for a processor, the time of processors counts; while all
    sleep, the clock's. So other load on the machine does not count, and a program that sleeps does
    not sleep for ever. By the clock, the limit is `BUSY` times as long; where the system does not
    tell (other than Linux), that alone counts.

    Attributes:
        computed: Seconds of processor time since the beginning.
    """

    computed = 0.0

    def __init__(self, pid: int, seconds: float, memory: int | None = None) -> None:
        self._pid, self._left, self._memory = pid, seconds, memory
        self._last = time.monotonic()
        self._deadline = self._last + BUSY * seconds
        used = used_by(pid)
        self._used = used.seconds if used else 0.0

    def skip(self, seconds: float) -> None:
        """Do not count time by the clock, in which nobody waited for these processes."""
        self._last += seconds

    def left(self) -> float:
        """Look at the processes, and return the seconds left; 0 if they take too much memory."""
        now, used = time.monotonic(), used_by(self._pid)
        passed, self._last = now - self._last, now
        if used is not None:
            computed, self._used = used.seconds - self._used, used.seconds
            self._left -= max(computed, 0.0 if used.is_active else passed)
            self.computed += computed
            if self._memory is not None and used.memory > self._memory:
                return 0.0
        return max(0.0, min(self._left, self._deadline - now))


def used_by(pid: int) -> Used | None:
    """Return what a process and its descendants took; None if the system does not tell."""
    ticks, pages, is_active, known, pending = 0, 0, False, False, [pid]
    while pending:
        process = Path(f"/proc/{pending.pop()}")
        try:
            fields = _fields(process)
            ticks += sum(map(int, fields[11:15]))  # its own time, and of its ended ones
            pages += int(fields[21])
            for thread in (process / "task").iterdir():
                is_active |= _fields(thread)[0] in "RD"
                pending += map(int, (thread / "children").read_text().split())
            known = True
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        except OSError:
            return None
    return Used(ticks / _TICKS, is_active, pages * _PAGE) if known else None


def _fields(process: Path) -> list[str]:
    """Read `stat` from the state on; the name before it may hold anything."""
    return (process / "stat").read_text().rpartition(")")[2].split()
