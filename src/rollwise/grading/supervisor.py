"""The process that forks workers, hands jobs to them, and replaces those that die.

Why no library does this: `pebble`, `loky` and `concurrent.futures` unpickle what a worker sends,
and a hostile response may control that worker; only JSON is read here. The standard library's fork
server gives every worker a pipe to the trainer's resource tracker (which deletes shared memory on
request), runs the user's script again in each worker, and leaves hanging workers behind when the
trainer is killed.
"""

import contextlib
import gc
import itertools
import json
import math
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from rollwise.grading.worker import RETRIED, Failure, Limits, Load, Result, failure_of, send, serve

REAP_EVERY = 0.5
"""Seconds between looks for orphans that have ended, of which a long run has many thousands."""

PATIENCE = 1.0
"""Seconds for the rest of a worker's message; and, at the end, for what workers started to end."""

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
    pid: int
    pipe: Connection
    deadline: float
    is_ready: bool = False
    job: _Job | None = None


def main(control_number: int) -> None:
    """Grade what the trainer sends through a connection until it ends.

    A message from the trainer is a text and an answer; they are numbered as they come. A message to
    it is a number and a result, or None and why no worker can start.
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
        while True:
            self._hand_out()
            next_deadline = min((w.deadline for w in self._workers.values()), default=math.inf)
            patience = min(REAP_EVERY, max(0.0, next_deadline - time.monotonic()))
            for pipe in wait([self._control, *self._workers], patience):
                if pipe is self._control:
                    self._jobs.append(_Job(next(self._numbers), self._control.recv_bytes()))
                else:
                    self._hear(self._workers[pipe])  # type: ignore[index]
            self._reap()
            for worker in [*self._workers.values()]:
                if worker.deadline < time.monotonic():
                    self._end_late(worker)

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
            worker.job, worker.deadline = self._jobs.popleft(), time.monotonic() + self._limits.wall
            with contextlib.suppress(OSError):  # it has died, which its pipe will say
                worker.pipe.send_bytes(worker.job.message)
        starting = sum(not worker.is_ready for worker in self._workers.values())
        for _ in range(min(len(self._jobs) - starting, self._most - len(self._workers))):
            self._fork()

    def _fork(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        if pid := os.fork():
            os.setpgid(pid, pid)  # what it starts ends with it
            theirs.close()
            # A message that a worker only begins to send must not keep all others waiting.
            with socket.socket(fileno=os.dup(ours.fileno())) as end:
                patience = struct.pack("ll", int(PATIENCE), 0)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
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
            if worker.job:
                result, is_last = message
                result = _checked(result)
        except (EOFError, OSError, ValueError, TypeError):
            self._lose(worker)
            return
        if worker.job:
            send(self._control, [worker.job.number, result])
            worker.job, worker.deadline = None, math.inf
            if is_last:
                self._end(worker)
        elif worker.is_ready:  # it was not asked
            self._end(worker)
        elif message:
            raise CannotStart(message)
        else:
            worker.is_ready, worker.deadline = True, math.inf
            self._lost_starts = 0

    def _lose(self, worker: _Worker) -> None:
        """Handle the death of a worker; one that was starting may have been killed, once."""
        code = self._end(worker)
        if not worker.is_ready:
            self._lost_starts += 1
            if self._lost_starts > 1:
                raise CannotStart(f"ended with exit code {code}")
        elif code == -signal.SIGPROF:
            self._fail(worker, "timeout", f"it took longer than {self._limits.cpu:g} s")
        else:
            self._fail(worker, "died", f"its worker died (exit code {code})")

    def _end_late(self, worker: _Worker) -> None:
        self._end(worker)
        if not worker.is_ready:
            raise CannotStart(f"not ready after {self._limits.start:g} s")
        # Where processor time is limited and was not used up, the machine was too busy.
        kind = "timeout" if self._limits.cpu is None else "stalled"
        self._fail(worker, kind, f"it took longer than {self._limits.wall:g} s by the clock")

    def _fail(self, worker: _Worker, kind: str, reason: str) -> None:
        job = worker.job
        if job is None:
            return
        if kind in RETRIED and not job.tried:
            job.tried = True
            self._jobs.appendleft(job)
        else:
            send(self._control, [job.number, Failure(kind, reason)])

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


def _checked(result: object) -> Result:
    if isinstance(result, list):
        return Failure(*map(str, result))
    if isinstance(result, float) and math.isfinite(result):
        return result
    raise ValueError("a reward must be finite")


_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def _call_prctl(option: int, value: int) -> None:
    # What children leave behind would go to process 1, which in a container may be a trainer that
    # waits for no such child, so that they stay as zombies.
    if sys.platform == "linux":
        with contextlib.suppress(ImportError):
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
