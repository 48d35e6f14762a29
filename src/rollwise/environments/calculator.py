"""The environment of the built-in task `tool-sums`: a calculator that sometimes fails."""

import random
import re
from dataclasses import dataclass

from rollwise.environments.episodes import EpisodeEnvironment, Opening, Play, Turn
from rollwise.sampling.checks import Share

CALL = re.compile(r"(-?\d+)([+-]\d+)")
"""What the calculator takes: the last word of a turn, such as `12-9`."""

FAILURE = "? "
"""What it says to anything else, and when it fails."""


@dataclass(frozen=True)
class Calculator(EpisodeEnvironment):
    """A calculator for sums of two numbers, which sometimes fails.

    A turn that contains `=` is the answer, and goes to the grader. In any other turn, the last word
    is calculated: `7 12-9` is answered by `3 `.
    """

    failure_rate: Share = 0.25
    """Probability that it answers `? ` instead of the sum."""

    def begin(self, opening: Opening) -> Play:
        """Begin an episode; when the calculator fails is set by its seed."""
        return _Calculating(self.failure_rate, random.Random(opening.seed))


class _Calculating:
    def __init__(self, failure_rate: float, luck: random.Random) -> None:
        self._failure_rate, self._luck = failure_rate, luck

    def step(self, reply: str) -> Turn:
        if "=" in reply:
            return Turn(done=True)
        call = CALL.fullmatch((reply.split() or [""])[-1])
        if call is None or self._luck.random() < self._failure_rate:
            return Turn(FAILURE)
        return Turn(f"{int(call[1]) + int(call[2])} ")
