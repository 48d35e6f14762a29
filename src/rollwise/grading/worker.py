"""What runs in a worker process, within limits: it grades what comes through its pipe."""

import json
import math
import os
import resource
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from rollwise.errors import PluginError
from rollwise.sampling import Score

GradeFunction = Callable[..., Any]
"""(response, answer), and a row where one was sent -> what `Score.of` reads."""

Load = Callable[[], GradeFunction]
"""Makes the function in a worker; picklable."""


class Failure(NamedTuple):
    """Why a response has no reward."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Limits:
    """What grading one response, and starting a worker, may take.

    Attributes:
        seconds: Time for one response: of processors while it computes, so that other load on the
            machine changes no reward, and by the clock while it sleeps (see `ProgramUsage`). A
            failure is tried once more, unless it computed for all its time.
        memory: Bytes for one response, beyond what a worker holds when it is ready; None for no
            limit. Enforced on Linux.
        start: Seconds by the clock for a worker to become ready, imports from a slow disk included.
    """

    seconds: float
    memory: int | None = None
    start: float = 1800.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"timeout must be above 0 seconds and finite, got {self.seconds}")


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
            job = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        result = _grade(function, job)
        # What one response leaves behind must not take the memory of the next ones.
        last = limits.memory is not None and peak_memory() - ready_size > limits.memory // 4
        send(pipe, [result, last])


def _grade(function: GradeFunction, job: list[Any]) -> float | dict[str, float] | Failure:
    try:
        return Score.of(function(*job)).told
    except BaseException as error:
        return failure_of(error)


def failure_of(error: BaseException) -> Failure:
    """Describe an error, even one whose own text raises."""
    reason = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, PluginError):
        reason = str(error)
    return Failure(type(error.__cause__ or error).__name__, reason[:500])


def limit_waits(pipe: Connection, receiving: float, sending: float) -> None:
    """Let waits for a message, and for room to send one, end in a BlockingIOError; 0 for never."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option, limit in ((socket.SO_RCVTIMEO, receiving), (socket.SO_SNDTIMEO, sending)):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(limit), 0))


def send(pipe: Connection, message: object) -> None:
    """Send plain data as JSON; arrays as lists, and values of other kinds as text."""
    pipe.send_bytes(json.dumps(message, default=_plain).encode())


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def peak_memory() -> int:
    """Return the most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
