"""The command line in a process of its own that is forked: it imports nothing anew.

Another interpreter would import torch and transformers first, for seconds.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from rollwise.cli import main

PATIENCE = 300.0  # seconds for what must come; nothing waits that long unless it is broken


class Command:
    """A command that runs beside the test: `Command("train", "--output", folder)`.

    Args:
        *arguments: The command's.
        shown: A file for what the command shows.
    """

    def __init__(self, *arguments: str, shown: Path):
        self._shown = shown
        shown.unlink(missing_ok=True)
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(arguments, shown)
        )
        self._process.start()

    @property
    def pid(self):
        """Of its process."""
        return self._process.pid

    def wait_for(self, condition):
        """Wait until a condition holds, while the command runs."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self._process.is_alive(), self._shown.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def has_worked(self, seconds):
        """Wait until it has used so much time of processors; returns whether it still runs then.

        Unlike a time by the clock, that is the same point of the command on a busy machine.
        """
        used = {}
        self.wait_for(self._shown.exists)
        while self._process.is_alive() and sum(used.values()) < seconds:
            time.sleep(0.001)
            for pid in family(self.pid):
                with contextlib.suppress(OSError):  # it has ended
                    used[pid] = time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)
        return self._process.is_alive()

    def send(self, number):
        """Send a signal."""
        os.kill(self.pid, number)

    def send_to_all(self, number):
        """Send a signal to the process and those that it has started; on Linux."""
        for pid in [self.pid, *children_of(self.pid)]:
            os.kill(pid, number)

    def end(self):
        """Wait for the end; returns the exit code and what was shown."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
        return code, self._shown.read_text(encoding="utf-8")


def children_of(pid):
    """Return the processes that one has started; none if it has ended. On Linux."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def family(pid):
    """Return a process and all that come from it."""
    return [pid, *(each for child in children_of(pid) for each in family(child))]


def _run(arguments, shown):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run with `&`
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, and would be waited for
    with shown.open("w", encoding="utf-8", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        try:
            code = main(arguments)
        except Exception:  # multiprocessing would print it where nobody looks
            traceback.print_exc()
            raise
        sys.exit(code)
