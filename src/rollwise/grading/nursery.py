"""The process that workers are forked from: what they share is loaded once, a successor at once."""

import contextlib
import functools
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from rollwise.grading.limits import GradeFunction, Limits, Load
from rollwise.grading.serving import loaded, send, serve


class Nursery:
    """Forks workers, knows what became of them, and takes them along when it ends.

    Any thread may use it. A nursery that dies is replaced when the next worker is wanted.

    Args:
        load: Makes the function that grades.
        limits: For one response.
        shared: Load once, before workers are forked; only for what starts no threads. Else each
            worker loads for itself.
    """

    def __init__(self, load: Load, limits: Limits, shared: bool) -> None:
        self._load, self._limits, self._shared = load, limits, shared
        self._process: _Process | None = None
        self._control: Connection | None = None
        self.closed = False
        self._starting = threading.Lock()
        self._talking = threading.Lock()

    def fork(self) -> tuple[int, Connection]:
        """Make a worker that is ready; return its process id and the pipe to it.

        Raises:
            RuntimeError: The grader is closed, or a function cannot be loaded.
            EOFError, OSError: The nursery died.
        """
        ours, theirs = multiprocessing.Pipe()
        with self._talking, theirs:
            pid: int = self._ask(self._control or self._start(), "fork", theirs)
        self._await_ready(ours, lambda: self.end(pid))
        return pid, ours

    def end(self, pid: int) -> int | None:
        """Kill a worker if it still lives; return its exit code, None where that is not known."""
        with self._talking, contextlib.suppress(EOFError, OSError):
            if self._control is not None:
                code: int | None = self._ask(self._control, pid)
                return code
        return None

    def close(self) -> None:
        """End for good, with all workers; another thread may be using the nursery."""
        with self._starting:
            self.closed = True
            if self._process is not None:
                self._process.terminate()

    def reap(self) -> None:
        """Forget the process; nobody may use the nursery any more."""
        self._death()

    def _start(self) -> Connection:
        self._control, theirs = multiprocessing.Pipe()
        with self._starting, theirs:
            if self.closed:
                raise RuntimeError("the grader is closed")
            settings = (self._load, self._limits, self._shared)
            self._process = _Process(target=_tend, args=(theirs, *settings), daemon=True)
            self._process.start()
        self._await_ready(self._control, self._death)
        return self._control

    def _await_ready(self, pipe: Connection, death: Callable[[], int | None]) -> None:
        """Wait until the process at the other end has loaded what it needs."""
        seconds = self._limits.start
        error = f"not ready after {seconds:g} s"
        try:
            if pipe.poll(seconds):
                error = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            error = f"ended with exit code {death()}"
        if self.closed:
            raise RuntimeError("the grader is closed")
        if error:
            death()
            raise RuntimeError(f"the grading workers cannot start: {error}")

    def _death(self) -> int | None:
        """End the nursery itself; return its exit code."""
        self._control = None
        if self._process is None:
            return None
        self._process.join(1.0)
        self._process.kill()
        self._process.join()
        return self._process.exitcode

    def _ask(self, control: Connection, request: Any, pipe: Connection | None = None) -> Any:
        try:
            send(control, request)
            if pipe is not None:
                send_handle(control, pipe.fileno(), None)
            return json.loads(control.recv_bytes())
        except (EOFError, OSError):
            self._control = None
            raise


class _Process(SpawnProcess):
    """A nursery that neither runs the user's script again nor hears Ctrl-C while it starts.

    It is a new process: a copy of the trainer's would hold its locks and its memory.
    """

    _starting = threading.Lock()

    def start(self) -> None:
        main = sys.modules["__main__"]
        with self._starting:
            spec = main.__spec__
            # A new process runs its parent's main module unless that is a package's `__main__`.
            main.__spec__ = ModuleSpec("rollwise.__main__", None)
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                main.__spec__ = spec


# What follows runs in the nursery.


def _tend(control: Connection, load: Load, limits: Limits, shared: bool) -> None:
    """Fork workers, end them and tell how they ended, as asked; at last end those that are left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if shared:
        function = loaded(load, control)
        if function is None:
            return
        load = functools.partial(_given, function)
    else:
        send(control, "")
    gc.freeze()  # or a worker's first collection would copy all that it shares
    workers: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while True:
            request = json.loads(control.recv_bytes())
            if request == "fork":
                pid = _fork(control, load, limits)
                workers.add(pid)
                send(control, pid)
            else:
                code = _end(request) if request in workers else None
                workers.discard(request)  # before the answer, at which the nursery may be ended
                send(control, code)
    except EOFError:  # the trainer has ended
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):  # it was being ended already
                _end(pid)


def _given(function: GradeFunction) -> GradeFunction:
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
