"""What runs in a worker process: it grades what comes through its pipe, within limits."""

import json
import math
import resource
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import SupportsFloat

from rollwise.errors import PluginError
from rollwise.grading.limits import Failure, GradeFunction, Limits, Load, Result


def serve(pipe: Connection, load: Load, limits: Limits) -> None:
    """Grade what comes through `pipe` until it closes.

    The first message is "" once the function is loaded, or the error. Each further one is a result
    and whether it is the last. Only JSON is sent: a hostile response may control this process.
    """
    try:
        function = load()
    except BaseException as error:
        send(pipe, failure_of(error).reason)
        return
    _limit_memory(limits.memory)
    ready_size = _peak_memory()
    last = False
    send(pipe, "")
    while not last:
        try:
            text, answer = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        # SIGPROF, left to its default action, ends the process even where C code hangs.
        signal.setitimer(signal.ITIMER_PROF, limits.cpu or 0.0)
        result = _grade(function, text, answer)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # What one response leaves behind must not take the memory of the next ones.
        last = limits.memory is not None and _peak_memory() - ready_size > limits.memory // 4
        send(pipe, [result, last])


def send(pipe: Connection, message: object) -> None:
    """Send plain data as JSON."""
    pipe.send_bytes(json.dumps(message).encode())


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
