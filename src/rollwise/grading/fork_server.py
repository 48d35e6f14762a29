"""The process that workers are forked from, so that a new one is ready within milliseconds.

Why no library does this: `pebble`, `loky` and `concurrent.futures` unpickle what a worker sends,
and a hostile response may control that worker; only JSON is read here. The standard library's fork
server gives every worker a pipe to the trainer's resource tracker (which deletes shared memory on
request), has one list of modules to preload for the whole process, runs the user's script again in
each worker, and leaves workers that hang behind when the trainer is killed.
"""

import contextlib
import functools
import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any

from rollwise.errors import GraderError
from rollwise.grading.limits import GradeFunction, Limits, Load
from rollwise.grading.worker import load_function, send, serve

_START = "import sys; sys.path[:] = {}; from rollwise.grading.fork_server import main; main({})"


class _EndedAtStart(GraderError):
    """A process ended before it was ready."""


class ForkServer:
    """Forks workers, reports how they ended, and ends them all when it ends.

    Any thread may use it. A server that dies is replaced when the next worker is needed.

    Args:
        load: Makes the function that grades.
        limits: For one response.
        shared: Load once, before workers are forked; only for what starts no threads. Else each
            worker loads for itself.
    """

    def __init__(self, load: Load, limits: Limits, shared: bool) -> None:
        self._job = pickle.dumps((load, limits, shared))
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None
        self.closed = False
        self._starting = threading.Lock()
        self._talking = threading.Lock()

    def fork(self) -> tuple[int, Connection]:
        """Make a worker that is ready; return its process id and the pipe to it.

        A process that ends while it starts may have been killed: another one is started, once.

        Raises:
            RuntimeError: The grader is closed.
            GraderError: A function cannot be loaded.
            EOFError, OSError: The server died.
        """
        try:
            return self._fork()
        except _EndedAtStart:
            return self._fork()

    def _fork(self) -> tuple[int, Connection]:
        ours, theirs = multiprocessing.Pipe()
        with self._talking, theirs:
            pid: int = self._ask(self._control or self._start(), "fork", theirs)
        self._wait_until_ready(ours, lambda: self.end(pid))
        return pid, ours

    def end(self, pid: int) -> int | None:
        """Kill a worker if it still lives; return its exit code, None if that is not known."""
        with self._talking, contextlib.suppress(EOFError, OSError):
            if self._control is not None:
                code: int | None = self._ask(self._control, pid)
                return code
        return None

    def close(self) -> None:
        """End for good, with all workers, even while other threads use it."""
        with self._starting:
            self.closed = True
        self._end_process()

    def _start(self) -> Connection:
        self._control, theirs = multiprocessing.Pipe()
        with self._starting, theirs:
            if self.closed:
                raise RuntimeError("the grader is closed")
            # A new process, for a copy of the trainer would hold its locks and its memory; in a
            # process group of its own, for Ctrl-C is for the trainer to handle.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(sys.path, theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(self._job)
        self._wait_until_ready(self._control, self._end_process)
        return self._control

    def _wait_until_ready(self, pipe: Connection, end: Callable[[], int | None]) -> None:
        """Wait until the process at the other end has loaded what it needs; end it on an error."""
        seconds = self._limits.start
        error, kind = f"not ready after {seconds:g} s", GraderError
        try:
            if pipe.poll(seconds):
                error = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            error, kind = f"ended with exit code {end()}", _EndedAtStart
        if self.closed:
            raise RuntimeError("the grader is closed")
        if error:
            end()
            raise kind(f"the grading workers cannot start: {error}")

    def _end_process(self) -> int | None:
        """End the server itself, which ends its workers; return its exit code."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            return self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._control = None  # not before: closed, it would end the server a second time

    def _ask(self, control: Connection, request: Any, pipe: Connection | None = None) -> Any:
        try:
            send(control, request)
            if pipe is not None:
                send_handle(control, pipe.fileno(), None)
            return json.loads(control.recv_bytes())
        except (EOFError, OSError):
            self._control = None
            raise


# What follows runs in the server.


def main(control_number: int) -> None:
    """Fork workers and end them as asked; at the end, end those that are left.

    Args:
        control_number: File descriptor of the connection to the trainer.
    """
    control = Connection(control_number)
    load, limits, shared = pickle.load(sys.stdin.buffer)
    if shared:
        function = load_function(load, control)
        if function is None:
            return
        load = functools.partial(_return, function)
    else:
        send(control, "")
    _adopt_orphans()
    gc.freeze()  # or a worker's first collection would copy all that it shares
    workers: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while True:
            is_asked = control.poll(REAP_EVERY)
            _wait_for_ended(_children() - workers)
            if not is_asked:
                continue
            request = json.loads(control.recv_bytes())
            if request == "fork":
                pid = _fork(control, load, limits)
                workers.add(pid)
                send(control, pid)
            else:
                code = _end(request) if request in workers else None
                workers.discard(request)  # before the answer, after which the server may be ended
                send(control, code)
    except EOFError:  # the trainer has ended
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):  # it was being ended already
                _end(pid)
        deadline = time.monotonic() + PATIENCE
        while (left := _children()) and time.monotonic() < deadline:
            _wait_for_ended(left)
            time.sleep(0.005)


REAP_EVERY = 0.5
"""Seconds between looks for orphans that have ended, of which a long run has many thousands."""

PATIENCE = 1.0
"""Seconds, at the end, for what workers started to end with them."""


def _adopt_orphans() -> None:
    """Become the parent of what workers started once they have ended.

    Else that is process 1, which in a container may be a trainer that waits for no such child, so
    that they stay as zombies.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_PR_SET_CHILD_SUBREAPER = 36


def _children() -> set[int]:
    """List the children of this process; none where the system does not tell."""
    with contextlib.suppress(OSError):
        return {
            int(pid)
            for thread in Path("/proc/self/task").iterdir()
            for pid in (thread / "children").read_text().split()
        }
    return set()


def _wait_for_ended(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _return(function: GradeFunction) -> GradeFunction:
    return function


def _fork(control: Connection, load: Load, limits: Limits) -> int:
    pipe = Connection(recv_handle(control))
    pid = os.fork()
    if pid:
        pipe.close()
        return pid
    try:
        control.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        serve(pipe, load, limits)
        os._exit(0)
    finally:
        os._exit(1)


def _end(pid: int) -> int:
    """Kill a worker, which changes nothing for one that has ended, and return its exit code."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
