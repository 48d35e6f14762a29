"""`WorkerGrader`, the base of graders whose function may hang or crash: worker processes run it."""

import hashlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.grading.grader import Grader, check_pairs
from rollwise.grading.limits import RETRIED, Failure, Limits, Load, Result
from rollwise.grading.pool import Job, WorkerPool
from rollwise.sampling.checks import at_least

logger = logging.getLogger(__name__)

MAX_WORKERS = 16
"""The most worker processes by default; each takes about 100 MB."""


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; any thread may use it.

    The workers start at the first response. A response whose grading raises, exceeds `limits`,
    kills its worker, or returns no finite number gets 0.0 and is counted in `failures`. Equal pairs
    of response and answer are graded once in a call, and while they are being graded.

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
        self.workers = min(_usable_cpus(), MAX_WORKERS) if workers is None else workers
        at_least("workers", self.workers, 1)
        self.failures = 0
        self._load, self._shared, self._remember = load, shared, remember
        self._logged: set[str] = set()
        self._results: dict[bytes, Result] = {}
        self._waiting: dict[bytes, list[Future[float]]] = {}
        self._pool: WorkerPool | None = None
        self._stop: Callable[[], Any] = lambda: None
        self._closed = False
        self._lock = threading.RLock()

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        """See `Grader`.

        Raises:
            RuntimeError: The grader is closed, or its workers cannot start.
        """
        futures = self.submit(responses, answers)
        try:
            return np.array([future.result() for future in futures], dtype=np.float64)
        finally:  # after Ctrl-C, what was not graded yet need not be
            for future in futures:
                future.cancel()

    def submit(self, responses: Sequence[str], answers: Sequence[str]) -> list[Future[float]]:
        """See `Grader`; futures that are cancelled in time are not graded.

        Raises:
            RuntimeError: The grader is closed; if the workers cannot start, futures raise it.
        """
        check_pairs(responses, answers)
        futures: list[Future[float]] = [Future() for _ in responses]
        with self._lock:  # so that no equal pair is done before all wait for it
            if self._closed:
                raise RuntimeError("the grader is closed")
            for future, response, answer in zip(futures, responses, answers, strict=True):
                part = self._part(response, answer)
                if isinstance(part, str):
                    self._grade_part(part, answer, future)
                else:
                    future.set_result(part)
        return futures

    def close(self) -> None:
        """Stop the workers; other threads that wait for rewards get a RuntimeError."""
        with self._lock:
            self._closed = True
        self._stop()

    def _part(self, response: str, answer: str) -> str | float:
        """Return the part of a response that decides its reward, or the reward if it is plain."""
        return response

    def _grade_part(self, text: str, answer: str, future: Future[float]) -> None:
        """Look the result up, wait for a running job, or begin a job."""
        key = hashlib.blake2b(repr((text, answer)).encode(), digest_size=16).digest()
        if (result := self._results.get(key)) is not None:
            self._finish([future], result)
        elif key in self._waiting:
            self._waiting[key].append(future)
        else:
            self._waiting[key] = [future]
            wanted, finish = partial(self._is_wanted, key), partial(self._finish_job, key)
            self._running_pool().put(Job(text, answer, wanted, finish))

    def _is_wanted(self, key: bytes) -> bool:
        with self._lock:
            if not all(future.cancelled() for future in self._waiting[key]):
                return True
            _set(self._waiting.pop(key), 0.0)  # tells those who wait that it is cancelled
            return False

    def _finish_job(self, key: bytes, result: Result | Exception) -> None:
        """Take the result of a job; called by the pool's thread."""
        with self._lock:
            futures = self._waiting.pop(key)
            is_lost = isinstance(result, Failure) and result.kind in RETRIED
            if self._remember and not is_lost and not isinstance(result, Exception):
                self._results[key] = result
                if len(self._results) > self._remember:
                    del self._results[next(iter(self._results))]
        self._finish(futures, result)

    def _finish(self, futures: list[Future[float]], result: Result | Exception) -> None:
        if isinstance(result, Failure):
            self._count(result, len(futures))
            result = 0.0
        _set(futures, result)

    def _count(self, failure: Failure, responses: int) -> None:
        with self._lock:
            self.failures += responses
            first = failure.kind not in self._logged
            self._logged.add(failure.kind)
        if first:
            message = "%s: a response got no reward: %s (more of this kind are only counted)"
            logger.warning(message, type(self).__name__, failure.reason)

    def _running_pool(self) -> WorkerPool:
        if self._pool is None:
            self._pool = WorkerPool(self._load, self.limits, self.workers, self._shared, self._lock)
            self._stop = weakref.finalize(self, self._pool.stop)
        return self._pool


def _set(futures: list[Future[float]], reward: float | Exception) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            if isinstance(reward, Exception):
                future.set_exception(reward)
            else:
                future.set_result(reward)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
