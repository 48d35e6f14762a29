"""Ends the processes that an engine started if this process is killed."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "ROLLWISE_ENGINE"
"""The environment variable by which an engine's processes are known."""

GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL."""


class Reaper:
    """Watches this process from another one, which ends an engine's processes if this is killed.

    An engine's processes are those that were started within `marking`, and their children, wherever
    vLLM starts them. Linux only.
    """

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        words = str(os.getpid()), self._mark, str(GRACE)
        # A session of its own, so that neither Ctrl-C nor a closed terminal ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Mark processes that are started within it."""
        os.environ[MARK] = self._mark
        try:
            yield
        finally:
            del os.environ[MARK]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def marked(mark: str) -> list[int]:
    """Find the running processes of this user that have the mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # no process, another user's, or just ended
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def watch(parent: int, mark: str, grace: float) -> None:
    """Wait until the parent has died, then end all marked processes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    for number in (signal.SIGTERM, signal.SIGKILL):
        ends = time.monotonic() + grace
        for process in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(process, number)
        while marked(mark) and time.monotonic() < ends:
            time.sleep(0.1)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
