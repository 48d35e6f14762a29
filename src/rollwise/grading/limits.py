"""The limits on grading one response, and the result."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat

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
"""Kinds of failures that may be the machine's fault: retried at once, and never remembered."""


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
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory must be at least 1 byte, got {self.memory}")
