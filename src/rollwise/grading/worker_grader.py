"""`WorkerGrader`, the base of graders whose function may hang or crash: worker processes run it."""

import contextlib
import hashlib
import itertools
import json
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from rollwise.errors import GraderError
from rollwise.grading.grader import Grader, check_pairs
from rollwise.grading.worker import RETRIED, Failure, Limits, Load, Result, send
from rollwise.sampling.checks import at_least

MAX_WORKERS = 16
"""The most worker processes by default; each takes about 100 MB."""

logger = logging.getLogger(__name__)

_START = "import sys; sys.path[:] = {}; from rollwise.grading.supervisor import main; main({})"


@dataclass(eq=False)
class _Job:
    """A text and its reference answer, and who waits for the reward."""

    key: bytes
    text: str
    answer: str
    futures: list[Future[float]] = field(default_factory=list)


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; any thread may use it.

    The workers start at the first response, and end when the grader is closed, or with this
    process. A response whose grading raises, exceeds `limits`, kills its worker, or returns no
    finite number gets 0.0 and is counted in `failures`. Equal pairs of response and answer are
    graded once in a call, and while they are being graded. Futures that are cancelled in time are
    not graded; those of a grader that is closed, or whose workers cannot start, raise a
    RuntimeError.

    Args:
        load: Makes the function, in each worker, before any response's time begins; picklable.
        limits: For one response.
        workers: Processes; None means one for each CPU, at most `MAX_WORKERS`.
        remember: How many of the latest results are kept for pairs that come again.
        shared: Load once for all workers; only for what starts no threads.

    Raises:
        ValueError: Less than one worker.
    """

    def __init__(
        self,
        load: Load,
        limits: Limits,
        workers: int | None = None,
        remember: int = 0,
        shared: bool = False,
    ) -> None:
        self.limits = limits
        usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self.workers = min(usable, MAX_WORKERS) if workers is None else workers
        at_least("workers", self.workers, 1)
        self._order = (load, limits, self.workers, shared)
        self._remember = remember
        self._results: dict[bytes, Result] = {}
        self._jobs: dict[bytes, _Job] = {}
        self._queue: deque[_Job] = deque()
        self._sent: dict[int, _Job] = {}
        self._logged: set[str] = set()
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        futures = self.submit(responses, answers)
        try:
            return np.array([future.result() for future in futures], dtype=np.float64)
        finally:  # after Ctrl-C, what was not graded yet need not be
            for future in futures:
                future.cancel()

    def submit(self, responses: Sequence[str], answers: Sequence[str]) -> list[Future[float]]:
        check_pairs(responses, answers)
        pairs = zip(responses, answers, strict=True)
        parts = [(self._part(*pair), pair[1]) for pair in pairs]
        with self._lock:  # so that no equal pair is done before all wait for it
            if self._closed:
                raise RuntimeError("the grader is closed")
            return [self._add(*part) for part in parts]

    def close(self) -> None:
        """Stop the workers; other threads that wait for rewards get a RuntimeError."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
            self._thread.join()

    def _part(self, response: str, answer: str) -> str:
        """Return the part of a response that decides its reward."""
        return response

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
                self._process = self._start()
            self._send()
        return future

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start a supervisor, and the thread that listens to it."""
        order = pickle.dumps(self._order)
        self._control, theirs = multiprocessing.Pipe()
        with theirs:
            # A new process, for a copy of the trainer would hold its locks and its memory; in a
            # process group of its own, for Ctrl-C is for the trainer to handle.
            process = subprocess.Popen(
                [sys.executable, "-c", _START.format(sys.path, theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(order)
        self._numbers = itertools.count()
        arguments = (process, self._control)
        self._thread = threading.Thread(target=self._listen, args=arguments, daemon=True)
        self._thread.start()
        return process

    def _send(self) -> None:
        """Send what the supervisor may have; if it has died, the listener will say so."""
        most = 2 * self.workers  # some ahead, so that no worker waits for the next one
        while self._queue and len(self._sent) < most:
            job = self._queue.popleft()
            if all(future.cancelled() for future in job.futures):
                del self._jobs[job.key]
                _set(job.futures, 0.0)  # tells those who wait that it is cancelled
                continue
            self._sent[next(self._numbers)] = job
            with contextlib.suppress(OSError):
                send(self._control, [job.text, job.answer])

    def _listen(self, process: "subprocess.Popen[bytes]", control: Connection) -> None:
        """Take results until the supervisor ends, then give up the jobs that are left."""
        reason = ""
        with contextlib.suppress(EOFError, OSError):
            while not reason:
                number, said = json.loads(control.recv_bytes())
                if number is None:
                    reason = said
                else:
                    self._take(number, Failure(*said) if isinstance(said, list) else said)
        code = process.wait()
        with self._lock:
            control.close()
            self._process = None
            jobs = [*self._jobs.values()]
            for left in (self._jobs, self._sent, self._queue):
                left.clear()
        reason = reason or f"the grading workers ended with exit code {code}"
        error = RuntimeError("the grader is closed") if self._closed else GraderError(reason)
        for job in jobs:
            _set(job.futures, error)

    def _take(self, number: int, result: Result) -> None:
        with self._lock:
            job = self._sent.pop(number)
            del self._jobs[job.key]
            if self._remember and not (isinstance(result, Failure) and result.kind in RETRIED):
                self._results[job.key] = result
                if len(self._results) > self._remember:
                    del self._results[next(iter(self._results))]
            self._send()
        self._finish(job.futures, result)

    def _finish(self, futures: list[Future[float]], result: Result) -> None:
        if isinstance(result, Failure):
            with self._lock:
                self.failures += len(futures)
                first = result.kind not in self._logged
                self._logged.add(result.kind)
            if first:
                message = "%s: a response got no reward: %s (more of this kind are only counted)"
                logger.warning(message, type(self).__name__, result.reason)
            result = 0.0
        _set(futures, result)


def _set(futures: list[Future[float]], reward: float | Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            if isinstance(reward, Exception):
                future.set_exception(reward)
            else:
                future.set_result(reward)
