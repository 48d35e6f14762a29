"""What grading one response may take, and what comes of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat

GradeFunction = Callable[[str, str], SupportsFloat]
"""(response, answer) -> reward."""

Load = Callable[[], GradeFunction]
"""Makes the function, in a worker; picklable."""


class Failure(NamedTuple):
    """Why a response has no reward."""

    kind: str
    reason: str


Outcome = float | Failure

PASSING = {"died", "stalled"}
"""Kinds of failures that may be the machine's: tried again at once, and never remembered."""


@dataclass(frozen=True)
class Limits:
    """What grading one response, and getting ready for the first, may take.

    Attributes:
        wall: Seconds by the clock.
        cpu: Seconds of processor time, which other load does not shorten; None for no limit.
        memory: Bytes beyond those that a worker has taken when it is ready; None for no limit.
            Held on Linux.
        start: Seconds for a worker to be ready, imports included.
    """

    wall: float
    cpu: float | None = None
    memory: int | None = None
    start: float = 120.0

    def __post_init__(self) -> None:
        if not 0 < self.wall < math.inf:
            raise ValueError(
                f"timeout must be above 0 seconds and finite, got {self.cpu or self.wall}"
            )
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory must be at least 1 byte, got {self.memory}")
