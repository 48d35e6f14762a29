"""The trainer's end of the workers: it sends jobs to their supervisor and takes the results."""

import contextlib
import itertools
import json
import logging
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import NamedTuple

from rollwise.errors import GraderError
from rollwise.grading.worker import Failure, Limits, Load, send

logger = logging.getLogger(__name__)

_START = "import sys; sys.path[:] = {}; from rollwise.grading.supervisor import main; main({})"


class _Job(NamedTuple):
    """A text and its reference answer, and who waits for the reward."""

    text: str
    answer: str
    future: Future[float]

    def begin(self) -> bool:
        """Whether anybody still waits; from now on it cannot be cancelled."""
        return self.future.running() or self.future.set_running_or_notify_cancel()


class WorkerPool:
    """Grades texts in the order in which they come, in worker processes; any thread may use it.

    See `WorkerGrader` for the arguments; `name` is for logs.
    """

    def __init__(self, name: str, load: Load, limits: Limits, workers: int, shared: bool) -> None:
        self.failures = 0
        self._name, self._order = name, (load, limits, workers, shared)
        self._most = 2 * workers  # sent ahead, so that no worker waits for the next one
        self._queue: deque[_Job] = deque()
        self._sent: dict[int, _Job] = {}
        self._numbers = itertools.count()
        self._logged: set[str] = set()
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None
        self._thread: threading.Thread | None = None
        self._deaths = 0
        self._stopped = False

    def submit(self, pairs: Iterable[tuple[str, str]]) -> list[Future[float]]:
        """Grade pairs of a text and the reference answer."""
        jobs = [_Job(text, answer, Future()) for text, answer in pairs]
        with self._lock:
            if self._stopped:
                raise RuntimeError("the grader is closed")
            self._queue.extend(jobs)
            self._send()
        return [job.future for job in jobs]

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
        order = pickle.dumps(self._order)
        self._control, theirs = multiprocessing.Pipe()
        with theirs:
            # A new process, because a copy of the trainer would hold its locks and memory; in its
            # own process group, because the trainer handles Ctrl-C.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(sys.path, theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(order)
        self._numbers = itertools.count()
        arguments = (self._process, self._control)
        self._thread = threading.Thread(target=self._listen, args=arguments, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        """Send what the supervisor may have; where it has died, the listener will start another."""
        while self._queue and len(self._sent) < self._most:
            job = self._queue.popleft()
            if not job.begin():
                continue
            if self._process is None:
                self._start()
            self._sent[next(self._numbers)] = job
            assert self._control is not None
            with contextlib.suppress(OSError):
                send(self._control, [job.text, job.answer])

    def _listen(self, process: "subprocess.Popen[bytes]", control: Connection) -> None:
        reason = None
        with contextlib.suppress(EOFError, OSError):
            while reason is None:
                reason = self._take(*json.loads(control.recv_bytes()))
        self._end(control, reason, process.wait())

    def _take(self, number: int | None, said: object) -> str | None:
        """Take a result; return why there will be none, if the supervisor says so."""
        if number is None:
            return str(said)
        result = Failure(*said) if isinstance(said, list) else float(said)  # type: ignore[arg-type]
        with self._lock:
            job = self._sent.pop(number)
            self._deaths = 0
            if isinstance(result, Failure):
                result = self._failed(result)
            self._send()
        job.future.set_result(result)
        return None

    def _end(self, control: Connection, reason: str | None, code: int) -> None:
        """Redo, once, the jobs of a supervisor that has ended; after that, give them up."""
        with self._lock:
            control.close()
            self._process = self._control = self._thread = None
            jobs = [*self._sent.values(), *self._queue]
            self._sent.clear()
            self._queue.clear()
            self._deaths += 1
            if not (self._stopped or reason or self._deaths > 1):
                self._queue.extend(jobs)
                self._send()
                return
            self._deaths = 0
        reason = reason or f"the grading workers cannot start: ended with exit code {code}"
        error = RuntimeError("the grader is closed") if self._stopped else GraderError(reason)
        for job in jobs:
            if job.begin():
                job.future.set_exception(error)

    def _failed(self, failure: Failure) -> float:
        """Count a failure, and log the first of its kind; return the reward."""
        self.failures += 1
        if failure.kind not in self._logged:
            self._logged.add(failure.kind)
            message = "%s: a response got no reward: %s (more of this kind are only counted)"
            logger.warning(message, self._name, failure.reason)
        return 0.0
