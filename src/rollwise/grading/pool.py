"""A pool of worker processes: each has a thread that feeds it, and a successor if it dies."""

import json
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Protocol

from rollwise.grading.limits import PASSING, Failure, Limits, Load, Outcome
from rollwise.grading.nursery import Nursery
from rollwise.grading.serving import send


class Task(Protocol):
    """A response to be graded; its methods are called by a thread of the pool."""

    @property
    def text(self) -> str:
        """What of the response is graded."""
        ...

    @property
    def answer(self) -> str:
        """The reference answer."""
        ...

    def wanted(self) -> bool:
        """Whether anyone still waits for it."""
        ...

    def settle(self, outcome: Outcome | Exception) -> None:
        """Take what came of it; an exception where there was no grading at all."""
        ...


class WorkerPool:
    """Grades tasks in the order in which they come; a worker that dies is replaced at once."""

    def __init__(self, load: Load, limits: Limits, workers: int, shared: bool = False) -> None:
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._nursery = Nursery(load, limits, shared)
        self._workers = [_Worker(self._nursery, limits) for _ in range(workers)]
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._feed, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def put(self, task: Task) -> None:
        """Queue a task."""
        self._tasks.put(task)
        if self._stopped:
            self._refuse_rest()

    def stop(self) -> None:
        """End the workers; what was not graded is settled with an error."""
        self._stopped = True
        for _ in self._workers:
            self._tasks.put(None)
        self._nursery.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        for worker in self._workers:
            worker.end()
        self._nursery.reap()
        self._refuse_rest()

    def _feed(self, worker: "_Worker") -> None:
        while self._grade_next(worker):
            pass

    def _grade_next(self, worker: "_Worker") -> bool:
        """Grade a task; a method of its own, so that an idle thread keeps none alive."""
        task = self._tasks.get()
        if task is None:
            return False
        if task.wanted():
            outcome: Outcome | Exception
            try:
                outcome = worker.grade(task.text, task.answer)
            except Exception as error:  # for whoever waits for it
                outcome = error
            task.settle(outcome)
        return True

    def _refuse_rest(self) -> None:
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task.settle(RuntimeError("the grader is closed"))


class _Worker:
    """A process and the pipe to it; for one thread."""

    def __init__(self, nursery: Nursery, limits: Limits) -> None:
        self._nursery = nursery
        self._limits = limits
        self._pid = 0
        self._pipe: Connection | None = None

    def grade(self, text: str, answer: str) -> Outcome:
        """Grade a response; twice where a failure may be the machine's fault.

        Raises:
            RuntimeError: The pool is stopped, or no worker can start.
        """
        outcome = self._try(text, answer)
        passing = isinstance(outcome, Failure) and outcome.kind in PASSING
        return self._try(text, answer) if passing else outcome

    def end(self) -> int | None:
        """End the process; return its exit code where that can be known."""
        if self._pipe is None:
            return None
        self._pipe.close()
        self._pipe = None
        return self._nursery.end(self._pid)

    def _try(self, text: str, answer: str) -> Outcome:
        try:
            pipe = self._pipe or self._start()
            send(pipe, [text, answer])
            if not pipe.poll(self._limits.wall):
                self.end()
                # What has its processor time limited and took less waited for the machine.
                kind = "timeout" if self._limits.cpu is None else "stalled"
                return Failure(kind, f"it took longer than {self._limits.wall:g} s by the clock")
            outcome, worn = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        if worn:
            self.end()
        return Failure(*outcome) if isinstance(outcome, list) else float(outcome)

    def _start(self) -> Connection:
        self._pid, self._pipe = self._nursery.fork()
        return self._pipe

    def _death(self) -> Failure:
        code = self.end()
        if self._nursery.closed:
            raise RuntimeError("the grader is closed")
        if code == -signal.SIGPROF:
            return Failure("timeout", f"it took longer than {self._limits.cpu:g} s")
        return Failure("died", f"its worker died (exit code {code})")
