"""Graders whose function may hang or crash: worker processes run it."""

import asyncio
import contextlib
import itertools
import json
import logging
import multiprocessing
import pickle
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import NamedTuple

from rollwise.errors import GraderError
from rollwise.grading.grader import FAILED, Grader, Row, check_pairs
from rollwise.grading.worker import Failure, Limits, Load, limit_waits, send
from rollwise.machine import usable_cores
from rollwise.sampling import Score
from rollwise.sampling.checks import at_least

logger = logging.getLogger(__name__)

MAX_WORKERS = 16
"""The most worker processes by default; each takes about 100 MB."""

PATIENCE = 600.0
"""Seconds in which the supervisor must have read a job, though workers be frozen."""

_START = "import sys; sys.path[:] = {}; from rollwise.grading.supervisor import main; main({})"


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; any thread may use it.

    The workers start at the first response. A response whose grading raises, exceeds `limits`,
    kills its worker, or returns no finite number gets 0.0 and is counted in `failures`. Futures
    that are cancelled in time are not graded; those of a grader that is closed, or whose workers
    cannot start, raise a RuntimeError.

    Args:
        load: Makes the function, in each worker, before any response's time begins; picklable.
        limits: For one response.
        workers: Processes; None means one for each usable core, at most `MAX_WORKERS`.
        shared: Load once for all workers; only if `load` starts no threads.

    Raises:
        ValueError: Fewer than one worker.
    """

    def __init__(
        self, load: Load, limits: Limits, workers: int | None = None, shared: bool = False
    ) -> None:
        self.limits = limits
        self.workers = min(usable_cores(), MAX_WORKERS) if workers is None else workers
        at_least("workers", self.workers, 1)
        self._pool = _Pool(type(self).__name__, load, limits, self.workers, shared)
        self._stop = weakref.finalize(self, self._pool.stop)

    @property
    def failures(self) -> int:  # type: ignore[override]
        return self._pool.failures

    def scores(
        self, responses: Sequence[str], answers: Sequence[str], rows: Sequence[Row] | None = None
    ) -> list[float]:
        check_pairs(responses, answers)
        given = (responses, answers) if rows is None else (responses, answers, rows)
        futures = list(map(self.submit, *given))
        try:
            return [future.result() for future in futures]
        finally:  # after Ctrl-C, what was not graded yet need not be
            for future in futures:
                future.cancel()

    async def reward(self, response: str, answer: str, row: Row | None = None) -> float:
        return await asyncio.wrap_future(self.submit(response, answer, row))

    def submit(self, response: str, answer: str, row: Row | None = None) -> Future[float]:
        """Begin to grade a response; returns the future of its reward."""
        return self._pool.submit([response, answer])

    def close(self) -> None:
        """Stop the workers; other threads that wait for rewards get a RuntimeError."""
        self._stop()


class _Job(NamedTuple):
    """What a worker gets, and who waits for the reward."""

    given: list[object]
    future: Future[float]

    def begin(self) -> bool:
        """Return whether anybody still waits; from now on it cannot be cancelled."""
        return self.future.running() or self.future.set_running_or_notify_cancel()


class _Pool:
    """The trainer's end of the workers: it sends jobs to their supervisor and takes the results."""

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

    def submit(self, given: list[object]) -> Future[float]:
        """Grade a text against a reference answer, by the row that may come third."""
        job = _Job(given, Future())
        with self._lock:
            if self._stopped:
                raise RuntimeError("the grader is closed")
            self._queue.append(job)
            self._send()
        return job.future

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
        limit_waits(self._control, 0.0, PATIENCE)
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
            assert self._control is not None and self._process is not None
            try:
                send(self._control, job.given)
            except BlockingIOError:  # it is frozen
                self._process.kill()
            except OSError:
                continue

    def _listen(self, process: "subprocess.Popen[bytes]", control: Connection) -> None:
        """Take results until the supervisor ends; then do its jobs again, once, or give them up."""
        reason = None
        with contextlib.suppress(EOFError, OSError):
            while reason is None:
                number, said = json.loads(control.recv_bytes())
                if number is None:
                    reason = said
                else:
                    self._take(number, said)
        code = process.wait()
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

    def _take(self, number: int, result: float | dict[str, float] | list[str]) -> None:
        """Take the result of a job; count a failure, and log the first of its kind."""
        with self._lock:
            job = self._sent.pop(number)
            self._deaths = 0
            if isinstance(result, list):
                self.failures += 1
                failure, result = Failure(*result), FAILED
                if failure.kind not in self._logged:
                    self._logged.add(failure.kind)
                    message = (
                        "%s: a response got no reward: %s (more of this kind are only counted)"
                    )
                    logger.warning(message, self._name, failure.reason)
            self._send()
        job.future.set_result(Score.of(result))
