"""The process that forks workers, hands jobs to them, and replaces those that die or freeze.

Why no library does this: `pebble` waits for ever for an idle worker that has stopped, or whose
interpreter a thread of an earlier response holds; `loky` fails all that is pending when one worker
dies, and has no time limits; both unpickle what a worker sends, though a hostile response may
control it. Only JSON is read here. The standard library's fork server gives every worker a pipe to
the trainer's resource tracker (which deletes shared memory on request), runs the user's script
again in each worker, and leaves hanging workers behind when the trainer is killed.
"""

import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from rollwise.grading.program_usage import ProgramUsage
from rollwise.grading.worker import Failure, Limits, Load, failure_of, limit_waits, send, serve
from rollwise.sampling import Score

LOOK_EVERY = 0.5
"""Seconds between looks at what workers take, and for orphans that have ended, of which a long run
has many thousands."""

PATIENCE = 1.0
"""Seconds for the rest of a worker's message; and, at the end, for what workers started to end."""

FROZEN = 5.0
"""Seconds in which an idle worker must have taken a job; one that does not is replaced."""

TIMEOUT = "timeout"
"""The kind of a failure that would only repeat itself: it computed for all its time."""

LONGEST_MESSAGE = 64 * 1024
"""Bytes of a worker's message."""


class CannotStart(Exception):
    """No worker can start; says why."""


@dataclass(eq=False)
class _Job:
    number: int
    message: bytes
    tried: bool = False


@dataclass(eq=False)
class _Worker:
    """A worker with a job, an idle one, or, until its deadline, one that starts.

    What it takes for a job counts from the first look at it, which most jobs do not see.
    """

    pid: int
    pipe: Connection
    deadline: float
    is_ready: bool = False
    job: _Job | None = None
    usage: ProgramUsage | None = None


def main(control_number: int) -> None:
    """Grade what the trainer sends through a connection until it ends.

    A message from the trainer is a text, an answer and perhaps a row; they are numbered as they
    come. A message to it is a number and a result, or None and why no worker can start.
    """
    control = Connection(control_number)
    load, limits, workers, shared = pickle.load(sys.stdin.buffer)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        supervisor = Supervisor(control, _loaded(load, limits) if shared else load, limits, workers)
        with contextlib.closing(supervisor):
            supervisor.run()
    except CannotStart as error:
        send(control, [None, f"the grading workers cannot start: {error}"])
    except (EOFError, ConnectionError):  # the trainer has ended
        return


def _loaded(load: Load, limits: Limits) -> Load:
    """Load the grading function now, for all workers."""
    signal.setitimer(signal.ITIMER_REAL, limits.start)  # ends this process
    try:
        function = load()
    except BaseException as error:
        raise CannotStart(failure_of(error).reason) from error
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    gc.freeze()  # or a worker's first collection would copy all that it shares
    return lambda: function


class Supervisor:
    """Grades jobs in the order in which they come, each by one of at most `most` workers."""

    def __init__(self, control: Connection, load: Load, limits: Limits, most: int) -> None:
        self._control, self._load, self._limits, self._most = control, load, limits, most
        self._numbers = itertools.count()
        self._jobs: deque[_Job] = deque()
        self._workers: dict[Connection, _Worker] = {}
        self._codes: dict[int, int] = {}
        self._lost_starts = 0
        _call_prctl(_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        """Serve the trainer until it ends, which raises an EOFError or ConnectionError."""
        every = min(LOOK_EVERY, self._limits.seconds / 10)
        next_look = time.monotonic() + every
        while True:
            self._hand_out()
            for pipe in wait([self._control, *self._workers], every):
                if pipe is self._control:
                    self._jobs.append(_Job(next(self._numbers), self._control.recv_bytes()))
                else:
                    self._hear(self._workers[pipe])  # type: ignore[index]
            if time.monotonic() >= next_look:
                self._reap()
                for worker in [*self._workers.values()]:
                    self._look(worker)
                next_look = time.monotonic() + every

    def close(self) -> None:
        """End all workers, and wait for what they started."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for worker in [*self._workers.values()]:
            self._end(worker)
        deadline = time.monotonic() + PATIENCE
        while self._reap() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            time.sleep(0.005)

    def _hand_out(self) -> None:
        """Give jobs to idle workers, and start workers for those that are left."""
        idle = [w for w in self._workers.values() if w.is_ready and w.job is None]
        while self._jobs and idle:
            worker = idle.pop()
            worker.job, worker.usage = self._jobs.popleft(), None
            try:
                worker.pipe.send_bytes(worker.job.message)
            except BlockingIOError:  # it is frozen, and did not get its job
                self._jobs.appendleft(worker.job)
                self._end(worker)
            except OSError:  # it has died, which its pipe will say
                continue
        starting = sum(not worker.is_ready for worker in self._workers.values())
        for _ in range(min(len(self._jobs) - starting, self._most - len(self._workers))):
            self._fork()

    def _fork(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        if pid := os.fork():
            os.setpgid(pid, pid)  # what it starts ends with it
            theirs.close()
            # A message that is only begun must not keep all others waiting.
            limit_waits(ours, PATIENCE, FROZEN)
            self._workers[ours] = _Worker(pid, ours, time.monotonic() + self._limits.start)
            return
        try:
            for pipe in (self._control, ours, *self._workers):
                pipe.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _call_prctl(_SET_PDEATHSIG, signal.SIGKILL)
            serve(theirs, self._load, self._limits)
            os._exit(0)
        finally:
            os._exit(1)

    def _hear(self, worker: _Worker) -> None:
        """Take a message of a worker, which a hostile response may have written."""
        try:
            message = json.loads(worker.pipe.recv_bytes(LONGEST_MESSAGE))
            if worker.is_ready:
                result, is_last = message
                result = _checked(result)
        except (EOFError, OSError, ValueError, TypeError):
            self._lose(worker, "died", f"a worker ended with exit code {self._end(worker)}")
            return
        if not worker.is_ready and message == "":
            worker.is_ready, self._lost_starts = True, 0
            return
        if worker.job:
            job, worker.job = worker.job, None
            self._finish(job, result)
            if not is_last:
                return
        self._end(worker)
        self._lose(worker, "", str(message))

    def _look(self, worker: _Worker) -> None:
        """End a worker that takes too long."""
        if worker.job:
            worker.usage = worker.usage or ProgramUsage(worker.pid, self._limits.seconds)
            if not worker.usage.left():
                self._end(worker)
                computes = worker.usage.computed > self._limits.seconds / 2
                kind = TIMEOUT if computes else "stalled"
                self._lose(worker, kind, f"it took longer than {self._limits.seconds:g} s")
        elif not worker.is_ready and time.monotonic() > worker.deadline:
            self._end(worker)
            self._lose(worker, "", f"not ready after {self._limits.start:g} s")

    def _lose(self, worker: _Worker, kind: str, why: str) -> None:
        """Do without a worker that has ended: try its job again; one may be killed as it starts."""
        if worker.job:
            self._finish(worker.job, Failure(kind, why))
        elif not worker.is_ready:
            self._lost_starts += 1
            if self._lost_starts > 1 and not any(w.is_ready for w in self._workers.values()):
                raise CannotStart(why)
            if self._lost_starts > 1:
                self._most = len(self._workers)

    def _finish(self, job: _Job, result: float | dict[str, float] | Failure) -> None:
        """Send the result of a job, unless it is a failure that is tried once more."""
        if isinstance(result, Failure) and result.kind != TIMEOUT and not job.tried:
            job.tried = True
            self._jobs.appendleft(job)
        else:
            send(self._control, [job.number, result])

    def _end(self, worker: _Worker) -> int:
        """Kill a worker, if it has not ended, and what it started; return its exit code."""
        del self._workers[worker.pipe]
        worker.pipe.close()
        with contextlib.suppress(OSError):
            os.killpg(worker.pid, signal.SIGKILL)
        if worker.pid in self._codes:
            return self._codes.pop(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _reap(self) -> bool:
        """Wait for children that have ended, orphans too; return whether any are left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if any(worker.pid == ended[0] for worker in self._workers.values()):
                    self._codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
            return True
        return False


def _checked(result: object) -> float | dict[str, float] | Failure:
    return Failure(*map(str, result)) if isinstance(result, list) else Score.of(result).told


_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def _call_prctl(option: int, value: int) -> None:
    # What children leave behind would go to process 1, which in a container may be a trainer that
    # waits for no such child, so that they stay as zombies.
    if sys.platform == "linux":
        with contextlib.suppress(ImportError):
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
