"""`WorkerGrader`, the base of graders whose function may hang or crash: worker processes run it."""

import os
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from rollwise.grading.grader import Grader, check_pairs
from rollwise.grading.pool import WorkerPool
from rollwise.grading.worker import Limits, Load
from rollwise.sampling.checks import at_least

MAX_WORKERS = 16
"""The most worker processes by default; each takes about 100 MB."""


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; any thread may use it.

    The workers start at the first response. A response whose grading raises, exceeds `limits`,
    kills its worker, or returns no finite number gets 0.0 and is counted in `failures`. Futures
    that are cancelled in time are not graded; those of a grader that is closed, or whose workers
    cannot start, raise a RuntimeError.

    Args:
        load: Makes the function, in each worker, before any response's time begins; picklable.
        limits: For one response.
        workers: Processes; None means one for each CPU, at most `MAX_WORKERS`.
        shared: Load once for all workers; only if `load` starts no threads.

    Raises:
        ValueError: Fewer than one worker.
    """

    def __init__(
        self, load: Load, limits: Limits, workers: int | None = None, shared: bool = False
    ) -> None:
        self.limits = limits
        usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self.workers = min(usable, MAX_WORKERS) if workers is None else workers
        at_least("workers", self.workers, 1)
        name = type(self).__name__
        self._pool = WorkerPool(name, load, limits, self.workers, shared)
        self._stop = weakref.finalize(self, self._pool.stop)

    @property
    def failures(self) -> int:  # type: ignore[override]
        return self._pool.failures

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        futures = self.submit(responses, answers)
        try:
            return np.array([future.result() for future in futures], dtype=np.float64)
        finally:  # after Ctrl-C, what was not graded yet need not be
            for future in futures:
                future.cancel()

    def submit(self, responses: Sequence[str], answers: Sequence[str]) -> list[Future[float]]:
        check_pairs(responses, answers)
        return self._pool.submit(zip(responses, answers, strict=True))

    def close(self) -> None:
        """Stop the workers; other threads that wait for rewards get a RuntimeError."""
        self._stop()
