"""What runs in a worker process, within limits: it grades what comes through its pipe."""

import json
import math
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, SupportsFloat

from rollwise.errors import PluginError

GradeFunction = Callable[[str, str], SupportsFloat]
"""(response, answer) -> reward."""

Load = Callable[[], GradeFunction]
"""Makes the function in a worker; picklable."""


class Failure(NamedTuple):
    """Why a response has no reward."""

    kind: str
    reason: str


Result = float | Failure
"""What grading one response gives: its reward, or why it has none."""

RETRIED = {"died", "stalled"}
"""Kinds of failures that may be the machine's fault: retried once."""


@dataclass(frozen=True)
class Limits:
    """What grading one response, and starting a worker, may take.

    Attributes:
        wall: Seconds by the clock for one response.
        cpu: Seconds of processor time for one response, which other load on the machine does not
            use up; None for no limit.
        memory: Bytes for one response, beyond what a worker holds when it is ready; None for no
            limit. Enforced on Linux.
        start: Seconds for a worker to become ready, imports included.
    """

    wall: float
    cpu: float | None = None
    memory: int | None = None
    start: float = 120.0

    def __post_init__(self) -> None:
        if not 0 < self.wall < math.inf:
            timeout = self.cpu or self.wall
            raise ValueError(f"timeout must be above 0 seconds and finite, got {timeout}")


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
    if limits.memory is not None and sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    ready_size = peak_memory()
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
        last = limits.memory is not None and peak_memory() - ready_size > limits.memory // 4
        send(pipe, [result, last])


def send(pipe: Connection, message: object) -> None:
    """Send plain data as JSON."""
    pipe.send_bytes(json.dumps(message).encode())


def peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _grade(function: GradeFunction, text: str, answer: str) -> Result:
    try:
        reward = float(function(text, answer))
    except BaseException as error:
        return failure_of(error)
    return reward if math.isfinite(reward) else Failure("not finite", f"{reward} returned")


def failure_of(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    reason = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, PluginError):
        reason = str(error)
    return Failure(type(error.__cause__ or error).__name__, reason[:500])
