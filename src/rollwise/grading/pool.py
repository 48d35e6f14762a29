"""The trainer's end of the workers: a thread for each, which sends it jobs and takes results."""

import contextlib
import math
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from rollwise.errors import GraderError
from rollwise.grading.limits import RETRIED, Failure, Limits, Load, Result
from rollwise.grading.worker import receive, send

_START = "import sys; sys.path[:] = {}; from rollwise.grading.worker import main; main({})"


@dataclass(frozen=True)
class Job:
    """A response to grade; its functions are called by a thread of the pool.

    Attributes:
        text: The part of the response that is graded.
        answer: The reference answer.
        is_wanted: Whether anyone still waits for it; asked before it is graded.
        finish: Takes its result, or an exception if it could not be graded at all.
    """

    text: str
    answer: str
    is_wanted: Callable[[], bool]
    finish: Callable[[Result | Exception], None]


class WorkerPool:
    """Grades jobs in the order in which they come, in worker processes; any thread may use it."""

    def __init__(self, load: Load, limits: Limits, workers: int, shared: bool) -> None:
        self._limits, self._most = limits, workers
        self._server = _Server(pickle.dumps((load, limits, shared)))
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def put(self, job: Job) -> None:
        """Queue a job, and start a worker if none is idle."""
        with self._lock:
            self._jobs.put(job)
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                self._threads.append(threading.Thread(target=self._run, daemon=True))
                self._threads[-1].start()

    def stop(self) -> None:
        """End the workers; jobs that were not graded finish with an error."""
        self._server.stop()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        with contextlib.closing(_Worker(self._server, self._limits)) as worker:
            while self._do_next(worker):
                pass  # and hold no job meanwhile, for its functions hold the grader

    def _do_next(self, worker: "_Worker") -> bool:
        """Do a job; return False if there will be no more."""
        job = self._next()
        if job is not None and job.is_wanted():
            try:
                job.finish(worker.grade([job.text, job.answer]))
            except RuntimeError as error:
                self._give_up(job, error)
        return job is not None

    def _next(self) -> Job | None:
        with contextlib.suppress(queue.Empty):
            return self._jobs.get_nowait()
        self._idle.release()
        return self._jobs.get()

    def _give_up(self, job: Job, error: RuntimeError) -> None:
        """No worker can start, which holds for all jobs that wait."""
        job.finish(error)
        for _ in range(self._jobs.qsize()):
            with contextlib.suppress(queue.Empty):
                if waiting := self._jobs.get_nowait():
                    waiting.finish(error)
                else:  # not a job, but the end
                    self._jobs.put(None)


class _Ended(Exception):
    """The process that forks workers has ended; holds its exit code."""


class _Server:
    """The process that forks workers; one that has ended is replaced when a worker is needed."""

    _control: socket.socket
    _replies: BinaryIO

    def __init__(self, order: bytes) -> None:
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._asking, self._lock = threading.Lock(), threading.Lock()

    def fork(self, pipe: socket.socket) -> int:
        """Start a worker that listens to `pipe`; return its process id."""
        return self._ask(0, [pipe.fileno()])

    def end(self, pid: int) -> int:
        """End a worker; return its exit code."""
        try:
            return self._ask(pid, [])
        except _Ended:  # and its workers with it
            return -signal.SIGKILL

    def stop(self) -> None:
        """End it with all workers; it is not replaced."""
        with self._lock:
            self._is_stopped, process = True, self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
        with self._asking:
            self._forget()

    def _ask(self, pid: int, sockets: list[int]) -> int:
        with self._asking:
            control, replies = self._running()
            try:
                socket.send_fds(control, [str(pid).encode()], sockets)
                reply = receive(replies)
            except (EOFError, OSError):
                raise _Ended(self._forget()) from None
            if isinstance(reply, int):
                return reply
            self._forget()
            raise GraderError(f"the grading workers cannot start: {reply}")

    def _running(self) -> tuple[socket.socket, BinaryIO]:
        with self._lock:
            if self._is_stopped:
                raise RuntimeError("the grader is closed")
            if self._process is None:
                self._start()
            return self._control, self._replies

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        self._replies = self._control.makefile("rb")
        with theirs:
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
            stdin.write(self._order)

    def _forget(self) -> int | None:
        """Let go of a process that has ended; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        self._replies.close()
        self._control.close()
        return process.wait()


class _Worker:
    """A worker, started when it is needed, and its successors."""

    _pipe: socket.socket
    _replies: BinaryIO

    def __init__(self, server: _Server, limits: Limits) -> None:
        self._server, self._limits = server, limits
        self._pid = 0  # none
        self._held = contextlib.ExitStack()  # both

    def grade(self, request: list[str]) -> Result:
        """Grade a text by an answer; again, once, if the machine may be at fault.

        Raises:
            GraderError: No worker can start.
            RuntimeError: The grader is closed.
        """
        result = self._try(request)
        is_lost = isinstance(result, Failure) and result.kind in RETRIED
        return self._try(request) if is_lost else result

    def close(self) -> None:
        """Let go of it."""
        self._held.close()
        self._pid = 0

    def _try(self, request: list[str]) -> Result:
        if not self._pid:
            self._start()
        self._pipe.settimeout(self._limits.wall)
        try:
            send(self._pipe, request)
            result, is_last = _read(receive(self._replies))
        except TimeoutError:
            self._end()
            # Where processor time is limited and was not used up, the machine was too busy.
            kind = "timeout" if self._limits.cpu is None else "stalled"
            return Failure(kind, f"it took longer than {self._limits.wall:g} s by the clock")
        except (EOFError, OSError, ValueError, TypeError):
            code = self._end()
            if code == -signal.SIGPROF:
                return Failure("timeout", f"it took longer than {self._limits.cpu:g} s")
            return Failure("died", f"its worker died (exit code {code})")
        if is_last:
            self._end()
        return result

    def _start(self) -> None:
        for _ in range(2):  # one that was starting may have been killed
            try:
                return self._begin()
            except _Ended as ended:
                code = ended.args[0]
        raise GraderError(f"the grading workers cannot start: ended with exit code {code}")

    def _begin(self) -> None:
        self.close()
        self._pipe, theirs = socket.socketpair()
        self._held.enter_context(self._pipe)
        self._replies = self._held.enter_context(self._pipe.makefile("rb"))
        with theirs:
            self._pid = self._server.fork(theirs)
        self._pipe.settimeout(self._limits.start)
        try:
            complaint = receive(self._replies)
        except TimeoutError:
            complaint = f"not ready after {self._limits.start:g} s"
        except (EOFError, OSError, ValueError):
            raise _Ended(self._end()) from None
        if complaint:
            self._end()
            raise GraderError(f"the grading workers cannot start: {complaint}")

    def _end(self) -> int:
        """End it; return its exit code."""
        pid = self._pid
        self.close()
        return self._server.end(pid)


def _read(message: Any) -> tuple[Result, bool]:
    """Read a worker's result and whether it is its last; ValueError or TypeError if it is not."""
    result, is_last = message
    if isinstance(result, list):
        kind, reason = map(str, result)
        return Failure(kind, reason), bool(is_last)
    if not math.isfinite(result):
        raise ValueError(result)
    return float(result), bool(is_last)
