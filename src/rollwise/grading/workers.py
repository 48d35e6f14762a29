"""Grading in worker processes: a response that hangs or crashes there harms nothing else."""

import atexit
import contextlib
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from importlib.machinery import ModuleSpec
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray
from pebble import ProcessExpired, ProcessPool

from rollwise.grading.grader import Grader, check_lengths
from rollwise.sampling.checks import at_least

logger = logging.getLogger(__name__)

GradeFunction = Callable[[str, str], SupportsFloat]
"""(response, answer) -> reward."""

MAX_WORKERS = 16
"""The most worker processes started unasked; each takes about 100 MB."""

START_TIMEOUT = 120.0
"""Seconds for the first worker to be ready, imports included."""

ATTEMPTS = 3
"""Pools in a row that may break without grading anything, before the rest is given up."""

Pair = tuple[str, str]


class Failure(NamedTuple):
    """Why a response has no reward; the first of each `kind` is logged."""

    kind: str
    reason: str


class WorkerGrader(Grader):
    """A grader whose function runs in worker processes; usable from any thread.

    The workers start at the first `grade`. A response whose grading raises, takes longer than
    `timeout`, kills its worker, or returns no finite number gets 0.0 and is counted in `failures`.
    Equal pairs of response and answer are graded once.

    Args:
        load: Makes the function, in each worker, before any response's time begins; picklable.
        timeout: Seconds for one response.
        workers: Processes; None takes one for each CPU, at most `MAX_WORKERS`.

    Raises:
        ValueError: A timeout that is not above 0, or less than one worker.
    """

    def __init__(
        self, load: Callable[[], GradeFunction], timeout: float, workers: int | None = None
    ) -> None:
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be above 0 seconds and finite, got {timeout}")
        self.timeout = timeout
        self.workers = min(_usable_cpus(), MAX_WORKERS) if workers is None else workers
        at_least("workers", self.workers, 1)
        self.failures = 0
        self._load = load
        self._logged: set[str] = set()
        self._pool: ProcessPool | None = None
        self._stop: Callable[[], Any] = lambda: None
        self._closed = False
        self._lock = threading.RLock()

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        """See `Grader`.

        Raises:
            ValueError: Not as many answers as responses.
            RuntimeError: The grader is closed, or its workers cannot start.
        """
        check_lengths(responses, answers)
        pairs = list(zip(responses, answers, strict=True))
        outcomes = self._uninterrupted(list(dict.fromkeys(pairs)))
        return np.array([self._reward(outcomes[pair]) for pair in pairs], dtype=np.float64)

    def close(self) -> None:
        """Stop the workers; a `grade` that goes on in another thread raises a RuntimeError."""
        with self._lock:
            self._closed = True
            self._stop()

    def _reward(self, outcome: float | Failure) -> float:
        if not isinstance(outcome, Failure):
            return outcome
        with self._lock:
            self.failures += 1
            first = outcome.kind not in self._logged
            self._logged.add(outcome.kind)
        if first:
            message = "%s: a response cost its reward: %s (more of this kind are only counted)"
            logger.warning(message, type(self).__name__, outcome.reason)
        return 0.0

    def _uninterrupted(self, pairs: Sequence[Pair]) -> dict[Pair, float | Failure]:
        """Grade each pair in a thread of its own.

        Ctrl-C raises in the main thread only: within one of Pebble's locks it would leave that
        locked, and closing would wait for it for ever.
        """
        call: Future[dict[Pair, float | Failure]] = Future()
        abandoned = threading.Event()

        def run() -> None:
            try:
                call.set_result(self._outcomes(pairs, abandoned))
            except BaseException as error:
                call.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            return call.result()
        finally:
            abandoned.set()

    def _outcomes(
        self, pairs: Sequence[Pair], abandoned: threading.Event
    ) -> dict[Pair, float | Failure]:
        """Grade each pair; twice where its worker died.

        Pebble blames a worker's death on the response before, where the result of that one was
        not read yet.
        """
        outcomes = self._tried(pairs, abandoned)
        died = [pair for pair in pairs if _died(outcomes[pair])]
        return outcomes | self._tried(died, abandoned)

    def _tried(
        self, pairs: Sequence[Pair], abandoned: threading.Event
    ) -> dict[Pair, float | Failure]:
        """Grade each pair, in a new pool where one breaks.

        Pebble gives up a whole pool when a worker dies that it does not know to be busy: killed
        while idle, or so soon that the message that it took a response was not read yet.
        """
        outcomes: dict[Pair, float | Failure] = {}
        attempts = 0
        while len(outcomes) < len(pairs) and attempts < ATTEMPTS and not abandoned.is_set():
            graded = self._attempt([pair for pair in pairs if pair not in outcomes], abandoned)
            attempts = 0 if graded else attempts + 1
            outcomes |= graded
        return {pair: outcomes.get(pair, Failure("died", "its worker died")) for pair in pairs}

    def _attempt(
        self, pairs: Sequence[Pair], abandoned: threading.Event
    ) -> dict[Pair, float | Failure]:
        """Grade pairs in one pool; those that were not graded when it broke are left out."""
        pool = self._running_pool()
        futures: dict[Pair, Future[Any]] = {}
        # Not by `map`, whose limit counts from when a result is waited for: a task's own counts
        # from when a worker takes it.
        with contextlib.suppress(RuntimeError):  # the pool broke or was closed
            for pair in pairs:
                futures[pair] = pool.schedule(_grade, args=pair, timeout=self.timeout)
        pending = set(futures.values())
        # A broken pool forgets what it had not sent yet.
        while pending and pool.active and not abandoned.is_set():
            pending = wait(pending, timeout=1.0).not_done
        for future in pending:
            future.cancel()
        outcomes = {pair: self._outcome(future) for pair, future in futures.items()}
        return {pair: outcome for pair, outcome in outcomes.items() if outcome is not None}

    def _outcome(self, future: Future[Any]) -> float | Failure | None:
        """Read a task's result; None where its pool broke."""
        try:
            return future.result()  # type: ignore[no-any-return]
        except (CancelledError, BrokenProcessPool):
            return None
        except TimeoutError:
            return Failure("timeout", f"it took longer than {self.timeout:g} s")
        except ProcessExpired as error:
            return Failure("died", f"its worker died (exit code {error.exitcode})")
        except Exception as error:  # the pair cannot be pickled
            return _raised(error)

    def _running_pool(self) -> ProcessPool:
        with self._lock:
            if self._closed:
                raise RuntimeError("the grader is closed")
            if self._pool is None or not self._pool.active:
                self._stop()
                self._pool = self._start()
            return self._pool

    def _start(self) -> ProcessPool:
        context = _Spawn()
        pool = ProcessPool(
            self.workers, initializer=_prepare, initargs=(self._load,), context=context
        )
        # Runs at exit before Pebble's own handler, which can be outrun by a worker's replacement.
        self._stop = weakref.finalize(self, _stop_pool, pool)
        atexit.register(self._stop)
        try:
            error = pool.schedule(_start_error).result(START_TIMEOUT)
        except (BrokenProcessPool, TimeoutError) as failure:
            error = repr(failure)
        if error:
            self._stop()
            raise RuntimeError(f"the grading workers cannot start: {error}")
        return pool


def _died(outcome: float | Failure) -> bool:
    return isinstance(outcome, Failure) and outcome.kind == "died"


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _stop_pool(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()


class _Process(SpawnProcess):
    """A worker that neither runs the user's script again nor hears Ctrl-C while it starts."""

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


class _Spawn(SpawnContext):
    """Starts new processes: a copy of the trainer's would hold its locks and its memory."""

    Process = _Process


# What follows runs in the workers.

_function: GradeFunction | None = None
_error = ""


def _prepare(load: Callable[[], GradeFunction]) -> None:
    """Make a worker ready."""
    global _function, _error
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # ignored by now, by Pebble
    # Pebble ends a hung worker by SIGTERM, which it handles in Python: where C code hangs, nothing
    # happens for 3 s and the whole pool waits. The system's own way ends it at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _function = load()
    except BaseException as error:
        _error = _raised(error).reason


def _end_with_parent() -> None:
    """End a worker that hangs while its parent is killed; an idle one sees its pipe close."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _start_error() -> str:
    return _error


def _grade(response: str, answer: str) -> float | Failure:
    """Grade one response.

    Only numbers and text go back: an exception that the parent cannot unpickle breaks the pool.
    """
    if _function is None:
        return Failure("start", _error)
    try:
        value = _function(response, answer)
        if not isinstance(value, SupportsFloat):
            return Failure("not a number", f"{type(value).__name__} returned, not a number")
        reward = float(value)
    except BaseException as error:
        return _raised(error)
    return reward if math.isfinite(reward) else Failure("not finite", f"{reward} returned")


def _raised(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    return Failure(type(error).__name__, traceback.format_exception_only(error)[-1].strip()[:500])
