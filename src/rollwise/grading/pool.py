"""A pool of worker processes: a thread feeds each one, and one that dies is replaced."""

import json
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from rollwise.grading.fork_server import ForkServer
from rollwise.grading.limits import RETRIED, Failure, Limits, Load, Result
from rollwise.grading.worker import send


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
    """Grades jobs in the order in which they come; a worker that dies is replaced at once."""

    def __init__(self, load: Load, limits: Limits, workers: int, shared: bool = False) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._server = ForkServer(load, limits, shared)
        self._workers = [_Worker(self._server, limits) for _ in range(workers)]
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._feed, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def put(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put(job)
        if self._stopped:
            self._refuse_rest()

    def stop(self) -> None:
        """End the workers; jobs that were not graded finish with an error."""
        self._stopped = True
        for _ in self._workers:
            self._jobs.put(None)
        self._server.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        for worker in self._workers:
            worker.end()
        self._refuse_rest()

    def _feed(self, worker: "_Worker") -> None:
        while self._grade_next(worker):
            pass

    def _grade_next(self, worker: "_Worker") -> bool:
        """Grade a job; a method of its own, so that an idle thread keeps no job alive."""
        job = self._jobs.get()
        if job is None:
            return False
        if job.is_wanted():
            result: Result | Exception
            try:
                result = worker.grade(job.text, job.answer)
            except Exception as error:  # for whoever waits for it
                result = error
            job.finish(result)
        return True

    def _refuse_rest(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                job.finish(RuntimeError("the grader is closed"))


class _Worker:
    """A process and the pipe to it; for one thread."""

    def __init__(self, server: ForkServer, limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._pid = 0
        self._pipe: Connection | None = None

    def grade(self, text: str, answer: str) -> Result:
        """Grade a response; twice where a failure may be the machine's fault.

        Raises:
            RuntimeError: The pool is stopped, or no worker can start.
        """
        result = self._try(text, answer)
        again = isinstance(result, Failure) and result.kind in RETRIED
        return self._try(text, answer) if again else result

    def end(self) -> int | None:
        """End the process; return its exit code if that can be known."""
        if self._pipe is None:
            return None
        self._pipe.close()
        self._pipe = None
        return self._server.end(self._pid)

    def _try(self, text: str, answer: str) -> Result:
        try:
            pipe = self._pipe or self._start()
            send(pipe, [text, answer])
            if not pipe.poll(self._limits.wall):
                self.end()
                # Where processor time is limited and was not used up, the machine was too busy.
                kind = "timeout" if self._limits.cpu is None else "stalled"
                return Failure(kind, f"it took longer than {self._limits.wall:g} s by the clock")
            result, last = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        if last:
            self.end()
        return Failure(*result) if isinstance(result, list) else float(result)

    def _start(self) -> Connection:
        self._pid, self._pipe = self._server.fork()
        return self._pipe

    def _death(self) -> Failure:
        code = self.end()
        if self._server.closed:
            raise RuntimeError("the grader is closed")
        if code == -signal.SIGPROF:
            return Failure("timeout", f"it took longer than {self._limits.cpu:g} s")
        return Failure("died", f"its worker died (exit code {code})")
