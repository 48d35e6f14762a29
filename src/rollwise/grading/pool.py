"""Worker processes: each has a thread that feeds it, limits of the system's, and a successor."""

import json
import math
import multiprocessing
import os
import queue
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, Protocol, SupportsFloat

GradeFunction = Callable[[str, str], SupportsFloat]
"""(response, answer) -> reward."""

Load = Callable[[], GradeFunction]
"""Makes the function, in a worker; picklable."""

START_TIMEOUT = 120.0
"""Seconds for a worker to be ready, imports included."""


class Failure(NamedTuple):
    """Why a response has no reward."""

    kind: str
    reason: str


Outcome = float | Failure

PASSING = {"died", "stalled"}
"""Kinds of failures that may be the machine's and not the response's: never remembered."""


@dataclass(frozen=True)
class Limits:
    """What grading one response may take.

    Attributes:
        wall: Seconds by the clock.
        cpu: Seconds of processor time, which other load does not shorten; None for no limit.
        memory: Bytes beyond those that a worker has taken when it is ready; None for no limit.
            Held on Linux.
    """

    wall: float
    cpu: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.wall < math.inf:
            raise ValueError(
                f"timeout must be above 0 seconds and finite, got {self.cpu or self.wall}"
            )
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory must be at least 1 byte, got {self.memory}")


class Task(Protocol):
    """A response to be graded; its methods are called by a thread of the pool."""

    @property
    def text(self) -> str:
        """What of the response is graded."""
        ...

    @property
    def answer(self) -> str:
        """The reference answer."""
        ...

    def wanted(self) -> bool:
        """Whether anyone still waits for it."""
        ...

    def settle(self, outcome: Outcome | Exception) -> None:
        """Take what came of it; an exception where there was no grading at all."""
        ...


class WorkerPool:
    """Grades tasks in the order in which they come; a worker that dies is replaced at once."""

    def __init__(self, load: Load, limits: Limits, workers: int) -> None:
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._workers = [_Worker(load, limits) for _ in range(workers)]
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._feed, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def put(self, task: Task) -> None:
        """Queue a task."""
        self._tasks.put(task)
        if self._stopped:
            self._refuse_rest()

    def stop(self) -> None:
        """End the workers; what was not graded is settled with an error."""
        self._stopped = True
        for worker in self._workers:
            self._tasks.put(None)
            worker.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        for worker in self._workers:
            worker.reap()
        self._refuse_rest()

    def _feed(self, worker: "_Worker") -> None:
        while self._grade_next(worker):
            pass

    def _grade_next(self, worker: "_Worker") -> bool:
        """Grade a task; a method of its own, so that an idle thread keeps none alive."""
        task = self._tasks.get()
        if task is None:
            return False
        if task.wanted():
            outcome: Outcome | Exception
            try:
                outcome = worker.grade(task.text, task.answer)
            except Exception as error:  # for whoever waits for it
                outcome = error
            task.settle(outcome)
        return True

    def _refuse_rest(self) -> None:
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task.settle(RuntimeError("the grader is closed"))


class _Worker:
    """A process and the pipe to it; only `close` may be called while a thread feeds it."""

    def __init__(self, load: Load, limits: Limits) -> None:
        self._load = load
        self._limits = limits
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._closed = False
        self._lock = threading.Lock()

    def grade(self, text: str, answer: str) -> Outcome:
        """Grade a response; twice where the worker died, which may be the machine's fault.

        Raises:
            RuntimeError: The worker is closed, or cannot start.
        """
        outcome = self._try(text, answer)
        return self._try(text, answer) if _kind(outcome) == "died" else outcome

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def reap(self) -> None:
        """Forget the process; its thread must have ended."""
        self._end()

    def _try(self, text: str, answer: str) -> Outcome:
        try:
            pipe = self._pipe or self._start()
            pipe.send_bytes(json.dumps([text, answer]).encode())
            if not pipe.poll(self._limits.wall):
                self._end(patience=0.0)
                return Failure("stalled", f"it took longer than {self._limits.wall:g} s")
            outcome, worn = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        if worn:
            self._end()
        return Failure(*outcome) if isinstance(outcome, list) else float(outcome)

    def _death(self) -> Failure:
        code = self._end()
        if self._closed:
            raise RuntimeError("the grader is closed")
        if code == -signal.SIGPROF:
            return Failure("timeout", f"it took longer than {self._limits.cpu:g} s")
        return Failure("died", f"its worker died (exit code {code})")

    def _start(self) -> Connection:
        """Start a process and wait until it is ready."""
        ours, theirs = multiprocessing.Pipe()
        with self._lock:
            if self._closed:
                raise RuntimeError("the grader is closed")
            self._process = _Process(
                target=_work, args=(theirs, self._load, self._limits), daemon=True
            )
            self._process.start()
        theirs.close()
        self._pipe = ours
        error = self._start_error(ours)
        if self._closed:
            error = "the grader is closed"
        if error:
            self._end(patience=0.0)
            raise RuntimeError(error)
        return ours

    def _start_error(self, pipe: Connection) -> str:
        error = f"not ready after {START_TIMEOUT:g} s"
        try:
            if pipe.poll(START_TIMEOUT):
                error = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            error = f"ended with exit code {self._end()}"
        return error and f"the grading workers cannot start: {error}"

    def _end(self, patience: float = 1.0) -> int | None:
        """Return the process's exit code; kill it if it still runs after `patience` seconds."""
        if self._process is None or self._pipe is None:
            return None
        self._pipe.close()
        self._pipe = None
        self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._process.exitcode


def _kind(outcome: Outcome) -> str:
    return outcome.kind if isinstance(outcome, Failure) else ""


class _Process(SpawnProcess):
    """A worker that neither runs the user's script again nor hears Ctrl-C while it starts.

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


# What follows runs in the workers.


def _work(pipe: Connection, load: Load, limits: Limits) -> None:
    """Grade what comes through `pipe` until that closes.

    Only JSON goes back, for a hostile response may have taken over what it was graded by.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        function = load()
    except BaseException as error:
        _send(pipe, raised(error).reason)
        return
    _limit_memory(limits.memory)
    ready_size = _peak_memory()
    _send(pipe, "")
    while True:
        try:
            text, answer = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        # SIGPROF's own way, to end the process, also works where C code hangs.
        signal.setitimer(signal.ITIMER_PROF, limits.cpu or 0.0)
        outcome = _graded(function, text, answer)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # What one response leaves behind must not take the room of those after it.
        worn = limits.memory is not None and _peak_memory() - ready_size > limits.memory // 4
        _send(pipe, [outcome, worn])
        if worn:
            return


def _send(pipe: Connection, message: object) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _end_with_parent() -> None:
    """End a worker that hangs while its parent is killed; an idle one sees its pipe close."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _limit_memory(memory: int | None) -> None:
    if memory is None or sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _graded(function: GradeFunction, text: str, answer: str) -> Outcome:
    try:
        value = function(text, answer)
        if not isinstance(value, SupportsFloat):
            return Failure("not a number", f"{type(value).__name__} returned, not a number")
        reward = float(value)
    except BaseException as error:
        return raised(error)
    return reward if math.isfinite(reward) else Failure("not finite", f"{reward} returned")


def raised(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    return Failure(type(error).__name__, traceback.format_exception_only(error)[-1].strip()[:500])
