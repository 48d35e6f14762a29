"""Graders whose function runs in worker processes, where it may hang and crash."""

import atexit
import hashlib
import logging
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.grading.grader import Grader, check_pairs
from rollwise.grading.limits import PASSING, Failure, Limits, Load, Outcome
from rollwise.grading.pool import WorkerPool
from rollwise.sampling.checks import at_least

logger = logging.getLogger(__name__)

MAX_WORKERS = 16
"""The most worker processes started unasked; each takes about 100 MB."""


class NeedsWhole(Exception):
    """Raised by a grade function where the part of a response that it got does not suffice."""


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; usable from any thread.

    The workers start at the first response. One whose grading raises, exceeds `limits`, kills its
    worker, or returns no finite number gets 0.0 and is counted in `failures`. Equal pairs of
    response and answer are graded once in a call, and while they are under way.

    Args:
        load: Makes the function, in each worker, before any response's time begins; picklable.
        limits: For one response.
        workers: Processes; None takes one for each CPU, at most `MAX_WORKERS`.
        remember: Verdicts that are kept for responses that come again; the latest ones.
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
        self._load, self._shared = load, shared
        self._logged: set[str] = set()
        self._verdicts = _Verdicts(remember)
        self._under_way: dict[bytes, _Task] = {}
        self._pool: WorkerPool | None = None
        self._stop: Callable[[], Any] = lambda: None
        self._closed = False
        self._lock = threading.RLock()

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        """See `Grader`.

        Raises:
            ValueError: Not as many answers as responses.
            TypeError: Something that is not text.
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
            ValueError: Not as many answers as responses.
            TypeError: Something that is not text.
            RuntimeError: The grader is closed; where the workers cannot start, futures raise it.
        """
        check_pairs(responses, answers)
        requests: dict[tuple[str, str], _Request] = {}
        futures: list[Future[float]] = []
        for pair in zip(responses, answers, strict=True):
            future: Future[float] = Future()
            requests.setdefault(pair, _Request(*pair, [])).futures.append(future)
            futures.append(future)
        for request in requests.values():
            self._begin(request)
        return futures

    def close(self) -> None:
        """Stop the workers; what is under way in other threads raises a RuntimeError."""
        with self._lock:
            self._closed = True
        self._stop()
        atexit.unregister(self._stop)

    def _part(self, response: str, answer: str) -> str | float:
        """Return what of a response its reward depends on, or the reward where that is plain."""
        return response

    def _begin(self, request: "_Request") -> None:
        part = self._part(request.response, request.answer)
        if isinstance(part, str):
            self._enqueue(request, part)
        else:
            request.settle(part)

    def _enqueue(self, request: "_Request", text: str) -> None:
        key = _digest(text, request.answer)
        with self._lock:
            if self._closed:
                raise RuntimeError("the grader is closed")
            outcome = self._verdicts.get(key)
            if outcome is None:
                task = self._under_way.get(key)
                if task is not None:
                    task.requests.append(request)
                else:
                    self._under_way[key] = task = _Task(self, key, text, request.answer, [request])
                    self._running_pool().put(task)
                return
        self._finish(request, text, outcome)

    def _wanted(self, task: "_Task") -> bool:
        with self._lock:
            wanted = any(request.wanted() for request in task.requests)
            if not wanted:
                del self._under_way[task.key]
            return wanted

    def _settle(self, task: "_Task", outcome: Outcome | Exception) -> None:
        """Take what came of a task; called by the pool's threads."""
        with self._lock:
            del self._under_way[task.key]
            if not isinstance(outcome, Exception):
                self._verdicts.put(task.key, outcome)
        for request in task.requests:
            try:
                self._finish(request, task.text, outcome)
            except RuntimeError as error:  # closed meanwhile
                request.settle(error)

    def _finish(self, request: "_Request", text: str, outcome: Outcome | Exception) -> None:
        if isinstance(outcome, Failure) and outcome.kind == NeedsWhole.__name__:
            if text != request.response:
                self._enqueue(request, request.response)
                return
            outcome = 0.0
        if isinstance(outcome, Failure):
            self._record(outcome, len(request.futures))
            outcome = 0.0
        request.settle(outcome)

    def _record(self, failure: Failure, responses: int) -> None:
        with self._lock:
            self.failures += responses
            first = failure.kind not in self._logged
            self._logged.add(failure.kind)
        if first:
            message = "%s: a response cost its reward: %s (more of this kind are only counted)"
            logger.warning(message, type(self).__name__, failure.reason)

    def _running_pool(self) -> WorkerPool:
        if self._pool is None:
            self._pool = WorkerPool(self._load, self.limits, self.workers, self._shared)
            self._stop = weakref.finalize(self, self._pool.stop)
            # At exit before multiprocessing ends the workers, which would be replaced.
            atexit.register(self._stop)
        return self._pool


@dataclass(frozen=True)
class _Request:
    """Equal pairs of a call, and the rewards that their caller waits for."""

    response: str
    answer: str
    futures: list[Future[float]]

    def wanted(self) -> bool:
        return not all(future.cancelled() for future in self.futures)

    def settle(self, reward: float | Exception) -> None:
        for future in self.futures:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(reward, Exception):
                future.set_exception(reward)
            else:
                future.set_result(reward)


@dataclass(frozen=True)
class _Task:
    """See `pool.Task`; `requests` may grow while it is under way."""

    grader: WorkerGrader
    key: bytes
    text: str
    answer: str
    requests: list[_Request]

    def wanted(self) -> bool:
        return self.grader._wanted(self)

    def settle(self, outcome: Outcome | Exception) -> None:
        self.grader._settle(self, outcome)


class _Verdicts:
    """The outcomes of the latest `size` tasks."""

    def __init__(self, size: int) -> None:
        at_least("remember", size, 0)
        self._size = size
        self._outcomes: OrderedDict[bytes, Outcome] = OrderedDict()

    def get(self, key: bytes) -> Outcome | None:
        if key in self._outcomes:
            self._outcomes.move_to_end(key)
        return self._outcomes.get(key)

    def put(self, key: bytes, outcome: Outcome) -> None:
        if not self._size or (isinstance(outcome, Failure) and outcome.kind in PASSING):
            return
        self._outcomes[key] = outcome
        if len(self._outcomes) > self._size:
            self._outcomes.popitem(last=False)


def _digest(text: str, answer: str) -> bytes:
    """Name a pair in 16 bytes, however long it is and whoever wrote it."""
    parts = [part.encode("utf-8", "surrogatepass") for part in (text, answer)]
    length = len(parts[0]).to_bytes(8, "little")
    return hashlib.blake2b(length + parts[0] + parts[1], digest_size=16).digest()


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
