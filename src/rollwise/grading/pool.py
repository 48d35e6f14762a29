"""The trainer's end of the workers: it sends jobs to their supervisor and takes the results."""

import contextlib
import hashlib
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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from rollwise.errors import GraderError
from rollwise.grading.worker import RETRIED, Failure, Limits, Load, Result, send

logger = logging.getLogger(__name__)

_START = "import sys; sys.path[:] = {}; from rollwise.grading.supervisor import main; main({})"


@dataclass(eq=False)
class _Job:
    """A text and its reference answer, and who waits for the reward."""

    key: bytes
    text: str
    answer: str
    futures: list[Future[float]] = field(default_factory=list)


class WorkerPool:
    """Grades texts in the order in which they come, in worker processes; any thread may use it.

    Equal pairs of text and answer are graded once, while one is being graded and as long as its
    result is among the latest `remember`. See `WorkerGrader` for the arguments; `name` is for logs.
    """

    def __init__(
        self, name: str, load: Load, limits: Limits, workers: int, remember: int, shared: bool
    ) -> None:
        self.failures = 0
        self._name, self._order = name, (load, limits, workers, shared)
        self._most = 2 * workers  # sent ahead, so that no worker waits for the next one
        self._remember = remember
        self._results: dict[bytes, Result] = {}
        self._jobs: dict[bytes, _Job] = {}
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
        with self._lock:  # so that no equal pair is done before all wait for it
            if self._stopped:
                raise RuntimeError("the grader is closed")
            return [self._add(text, answer) for text, answer in pairs]

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

    def _add(self, text: str, answer: str) -> Future[float]:
        """Look a result up, wait for a running job, or begin a job."""
        future: Future[float] = Future()
        key = hashlib.blake2b(repr((text, answer)).encode(), digest_size=16).digest()
        if (result := self._results.get(key)) is not None:
            self._finish([future], result)
        elif key in self._jobs:
            self._jobs[key].futures.append(future)
        else:
            job = self._jobs[key] = _Job(key, text, answer, [future])
            self._queue.append(job)
            if self._process is None:
                self._start()
            self._send()
        return future

    def _start(self) -> None:
        """Start a supervisor, and the thread that listens to it."""
        order = pickle.dumps(self._order)
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
            stdin.write(order)
        self._numbers = itertools.count()
        arguments = (self._process, self._control)
        self._thread = threading.Thread(target=self._listen, args=arguments, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        """Send what the supervisor may have; where it has died, the listener will start another."""
        while self._control is not None and self._queue and len(self._sent) < self._most:
            job = self._queue.popleft()
            if all(future.cancelled() for future in job.futures):
                del self._jobs[job.key]
                _set(job.futures, 0.0)  # tells those who wait that it is cancelled
                continue
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

    def _take(self, number: int | None, said: object) -> str | None:
        """Take a result; return why there will be none, if the supervisor says so."""
        if number is None:
            return str(said)
        result = Failure(*said) if isinstance(said, list) else float(said)  # type: ignore[arg-type]
        with self._lock:
            job = self._sent.pop(number)
            del self._jobs[job.key]
            self._deaths = 0
            if self._remember and not (isinstance(result, Failure) and result.kind in RETRIED):
                self._results[job.key] = result
                if len(self._results) > self._remember:
                    del self._results[next(iter(self._results))]
            self._send()
        self._finish(job.futures, result)
        return None

    def _end(self, control: Connection, reason: str | None, code: int) -> None:
        """Do the jobs of a supervisor that has ended again, once; else give them up."""
        with self._lock:
            control.close()
            self._process = self._control = self._thread = None
            jobs = [*self._sent.values(), *self._queue]
            self._sent.clear()
            self._queue.clear()
            self._deaths += 1
            if not (self._stopped or reason or self._deaths > 1):
                self._queue.extend(jobs)
                if jobs:
                    self._start()
                    self._send()
                return
            self._deaths = 0
            self._jobs.clear()
        error = GraderError(
            reason or f"the grading workers cannot start: ended with exit code {code}"
        )
        for job in jobs:
            _set(job.futures, RuntimeError("the grader is closed") if self._stopped else error)

    def _finish(self, futures: list[Future[float]], result: Result) -> None:
        if isinstance(result, Failure):
            with self._lock:
                self.failures += len(futures)
                first = result.kind not in self._logged
                self._logged.add(result.kind)
            if first:
                message = "%s: a response got no reward: %s (more of this kind are only counted)"
                logger.warning(message, self._name, result.reason)
            result = 0.0
        _set(futures, result)


def _set(futures: list[Future[float]], reward: float | Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            if isinstance(reward, Exception):
                future.set_exception(reward)
            else:
                future.set_result(reward)
