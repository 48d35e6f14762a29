"""How much time a program takes, however busy the machine is."""

import os
import time
from pathlib import Path

BUSY = 10
"""How many times its limit a program may take by the clock, on a machine too busy to run it."""

_TICKS = os.sysconf("SC_CLK_TCK")


class ProgramTime:
    """The time of a process and of all that it starts, against a limit in seconds.

    While one of them computes, or waits for a processor, the time of processors counts; while all
    sleep, the clock's. So other load on the machine does not count, and a program that sleeps does
    not sleep for ever. By the clock, the limit is `BUSY` times as long. Where the system does not
    tell (other than Linux; the client of a container), the clock alone counts.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._left = seconds
        self._last = time.monotonic()
        self._deadline = self._last + BUSY * seconds
        self._used, _ = time_used(pid) or (0.0, False)

    def left(self) -> float:
        """Look at the processes, and return the seconds that are left, at least 0."""
        now, found = time.monotonic(), time_used(self._pid)
        passed, self._last = now - self._last, now
        if found is None:
            self._left -= passed
        else:
            used, is_active = found
            self._left -= max(used - self._used, 0.0 if is_active else passed)
            self._used = used
        return max(0.0, min(self._left, self._deadline - now))


def time_used(pid: int) -> tuple[float, bool] | None:
    """Return the seconds of processors that a process and its descendants used, ended ones too.

    And whether one of their threads runs, or waits for a processor or a disk; None if not known.
    """
    ticks, is_active, known, pending = 0, False, False, [pid]
    while pending:
        process = Path(f"/proc/{pending.pop()}")
        try:
            ticks += sum(map(int, _fields(process)[11:15]))  # its own time, and of its ended ones
            for thread in (process / "task").iterdir():
                is_active |= _fields(thread)[0] in "RD"
                pending += map(int, (thread / "children").read_text().split())
            known = True
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        except OSError:
            return None
    return (ticks / _TICKS, is_active) if known else None


def _fields(process: Path) -> list[str]:
    """Read `stat` from the state on; the name before it may hold anything."""
    return (process / "stat").read_text().rpartition(")")[2].split()
