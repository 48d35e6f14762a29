"""The processes of a grader: a server that forks workers, and the workers, which grade.

Why no library does this: `pebble`, `loky` and `concurrent.futures` unpickle what a worker sends,
and a hostile response may control that worker; only JSON is read here. The standard library's fork
server gives every worker a pipe to the trainer's resource tracker (which deletes shared memory on
request), runs the user's script again in each worker, and leaves workers that hang behind when the
trainer is killed.
"""

import contextlib
import gc
import json
import math
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
import traceback
from typing import BinaryIO, SupportsFloat

from rollwise.errors import PluginError
from rollwise.grading.limits import Failure, GradeFunction, Limits, Load, Result

REAP_EVERY = 0.5
"""Seconds between looks for orphans that have ended, of which a long run has many thousands."""

PATIENCE = 1.0
"""Seconds, at the end, for what workers started to end with them."""


def main(control_number: int) -> None:
    """Fork and end workers as the trainer asks through a socket, until it ends."""
    control = socket.socket(fileno=control_number)
    load, limits, shared = pickle.load(sys.stdin.buffer)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if shared:
        try:
            load = _loaded(load, limits)
        except BaseException as error:
            return send(control, failure_of(error).reason)
    server = ForkServer(control, load, limits)
    with contextlib.suppress(ConnectionError), contextlib.closing(server):
        server.run()


def _loaded(load: Load, limits: Limits) -> Load:
    """Load what grades now, for all workers."""
    signal.setitimer(signal.ITIMER_REAL, limits.start)  # ends this process
    function = load()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    gc.freeze()  # or a worker's first collection would copy all that it shares
    return lambda: function


class ForkServer:
    """Forks workers from this process, which has one thread, and ends them."""

    def __init__(self, control: socket.socket, load: Load, limits: Limits) -> None:
        self._control, self._load, self._limits = control, load, limits
        self._codes: dict[int, int | None] = {}  # of each worker, once it has ended
        _call_prctl(_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        """Do what the trainer asks until it ends.

        With a socket it asks for a worker that listens there, and is told its process id; with a
        process id, for the end of that worker, and is told its exit code.
        """
        while True:
            if not select.select([self._control], [], [], REAP_EVERY)[0]:
                self._reap()
                continue
            request, sockets, *_ = socket.recv_fds(self._control, 64, 1)
            if not request:
                return
            send(self._control, self._fork(*sockets) if sockets else self._end(int(request)))

    def close(self) -> None:
        """End all workers, and wait for what they started."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in [*self._codes]:
            self._end(pid)
        deadline = time.monotonic() + PATIENCE
        while self._reap() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _fork(self, number: int) -> int:
        if pid := os.fork():
            os.close(number)
            self._codes[pid] = None
            return pid
        try:
            self._control.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _call_prctl(_SET_PDEATHSIG, signal.SIGKILL)
            serve(socket.socket(fileno=number), self._load, self._limits)
            os._exit(0)
        finally:
            os._exit(1)

    def _end(self, pid: int) -> int:
        """Kill a worker, which changes nothing for one that has ended; return its exit code."""
        code = self._codes.pop(pid)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code

    def _reap(self) -> bool:
        """Wait for children that have ended, orphans too; return whether any are left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._codes:
                    self._codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
            return True
        return False


def serve(pipe: socket.socket, load: Load, limits: Limits) -> None:
    """Grade what comes through `pipe`, a text and an answer at a time, until it closes.

    The first message is "" once the function is loaded, or the error. Each further one is a result
    and whether it is the last.
    """
    try:
        function = load()
    except BaseException as error:
        return send(pipe, failure_of(error).reason)
    _limit_memory(limits.memory)
    ready_size, last, requests = _peak_memory(), False, pipe.makefile("rb")
    send(pipe, "")
    while not last and (line := requests.readline()):
        text, answer = json.loads(line)
        # SIGPROF, left to its default action, ends the process even where C code hangs.
        signal.setitimer(signal.ITIMER_PROF, limits.cpu or 0.0)
        result = _grade(function, text, answer)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # What one response leaves behind must not take the memory of the next ones.
        last = limits.memory is not None and _peak_memory() - ready_size > limits.memory // 4
        send(pipe, [result, last])


def send(pipe: socket.socket, message: object) -> None:
    """Send plain data as a line of JSON."""
    pipe.sendall(json.dumps(message).encode() + b"\n")


def receive(lines: BinaryIO, longest: int = 65536) -> object:
    """Read a message, which a hostile response may have written; EOFError if there is none."""
    line = lines.readline(longest)
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _limit_memory(memory: int | None) -> None:
    if memory is None or sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _grade(function: GradeFunction, text: str, answer: str) -> Result:
    try:
        value = function(text, answer)
        if not isinstance(value, SupportsFloat):
            return Failure("not a number", f"{type(value).__name__} returned, not a number")
        reward = float(value)
    except BaseException as error:
        return failure_of(error)
    return reward if math.isfinite(reward) else Failure("not finite", f"{reward} returned")


def failure_of(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    reason = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, PluginError):
        reason = str(error)
    return Failure(type(error.__cause__ or error).__name__, reason[:500])


_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def _call_prctl(option: int, value: int) -> None:
    # What children leave behind would go to process 1, which in a container may be a trainer that
    # waits for no such child, so that they stay as zombies.
    if sys.platform == "linux":
        with contextlib.suppress(ImportError):
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
