"""What a worker does: it grades what comes through its pipe, within limits of the system's."""

import json
import math
import resource
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import SupportsFloat

from rollwise.grading.limits import Failure, GradeFunction, Limits, Load, Outcome


def serve(pipe: Connection, load: Load, limits: Limits) -> None:
    """Grade what comes through `pipe` until that closes.

    Only JSON goes back, for a hostile response may have taken over what it was graded by.
    """
    function = loaded(load, pipe)
    if function is None:
        return
    _limit_memory(limits.memory)
    ready_size = _peak_memory()
    while True:
        try:
            text, answer = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        # SIGPROF's own way, to end the process, also works where C code hangs.
        signal.setitimer(signal.ITIMER_PROF, limits.cpu or 0.0)
        outcome = _graded(function, text, answer)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # What one response leaves behind must not take the room of those after it.
        worn = limits.memory is not None and _peak_memory() - ready_size > limits.memory // 4
        send(pipe, [outcome, worn])
        if worn:
            return


def loaded(load: Load, pipe: Connection) -> GradeFunction | None:
    """Make the function and say that it is there; None where what it lacks was said instead."""
    try:
        function = load()
    except BaseException as error:
        send(pipe, raised(error).reason)
        return None
    send(pipe, "")
    return function


def send(pipe: Connection, message: object) -> None:
    """Send plain data."""
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


def _graded(function: GradeFunction, text: str, answer: str) -> Outcome:
    try:
        value = function(text, answer)
        if not isinstance(value, SupportsFloat):
            return Failure("not a number", f"{type(value).__name__} returned, not a number")
        reward = float(value)
    except BaseException as error:
        return raised(error)
    return reward if math.isfinite(reward) else Failure("not finite", f"{reward} returned")


def raised(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    return Failure(type(error).__name__, traceback.format_exception_only(error)[-1].strip()[:500])
