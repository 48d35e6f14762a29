"""The trainer's end of the workers: it sends jobs to their supervisor and takes the results."""

import contextlib
import itertools
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from rollwise.errors import GraderError
from rollwise.grading.limits import Failure, Limits, Load, Result
from rollwise.grading.worker import send

_START = "import sys; sys.path[:] = {}; from rollwise.grading.supervisor import main; main({})"


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
    """Grades jobs in the order in which they come, in worker processes; any thread may use it.

    A supervisor that dies is replaced, once for the same jobs. `lock` is the grader's: a second one
    could be taken in another order, for either calls the other.
    """

    def __init__(
        self,
        load: Load,
        limits: Limits,
        workers: int,
        shared: bool,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._order = pickle.dumps((load, limits, workers, shared))
        self._most = 2 * workers  # sent ahead, so that no worker waits for the next one
        self._jobs: deque[Job] = deque()
        self._sent: dict[int, Job] = {}
        self._numbers = itertools.count()
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None
        self._thread: threading.Thread | None = None
        self._deaths = 0
        self._stopped = False

    def put(self, job: Job) -> None:
        """Queue a job."""
        with self._lock:
            if not self._stopped:
                self._jobs.append(job)
                if self._process is None:
                    self._start()
                self._send()
                return
        job.finish(RuntimeError("the grader is closed"))

    def stop(self) -> None:
        """End the workers; jobs that were not graded finish with an error."""
        with self._lock:
            self._stopped = True
            process, thread = self._process, self._thread
        if process is not None:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start(self) -> None:
        """Start a supervisor, and the thread that listens to it."""
        self._control, theirs = multiprocessing.Pipe()
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
        self._numbers = itertools.count()
        arguments = (self._process, self._control)
        self._thread = threading.Thread(target=self._listen, args=arguments, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        """Send what the supervisor may have; where it has died, the listener will start another."""
        while self._control is not None and self._jobs and len(self._sent) < self._most:
            job = self._jobs.popleft()
            if job.is_wanted():
                self._sent[next(self._numbers)] = job
                with contextlib.suppress(OSError):
                    send(self._control, [job.text, job.answer])

    def _listen(self, process: "subprocess.Popen[bytes]", control: Connection) -> None:
        reason = None
        with contextlib.suppress(EOFError, OSError):
            while reason is None:
                reason = self._take(*json.loads(control.recv_bytes()))
        code = process.wait()
        self._end(control, reason, code)

    def _take(self, number: int | None, result: object) -> str | None:
        """Take a result; return why there will be none, if the supervisor says so."""
        if number is None:
            return str(result)
        with self._lock:
            job = self._sent.pop(number)
            self._deaths = 0
            self._send()
        job.finish(Failure(*result) if isinstance(result, list) else float(result))  # type: ignore[arg-type]
        return None

    def _end(self, control: Connection, reason: str | None, code: int) -> None:
        """Do the jobs of a supervisor that has ended again, once; else give them up."""
        with self._lock:
            control.close()
            self._process = self._control = self._thread = None
            jobs = [*self._sent.values(), *self._jobs]
            self._sent.clear()
            self._jobs.clear()
            self._deaths += 1
            if not (self._stopped or reason or self._deaths > 1):
                self._jobs.extend(jobs)
                if jobs:
                    self._start()
                    self._send()
                return
            self._deaths = 0
        error = GraderError(
            reason or f"the grading workers cannot start: ended with exit code {code}"
        )
        for job in jobs:
            job.finish(RuntimeError("the grader is closed") if self._stopped else error)
