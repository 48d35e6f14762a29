"""A grader that misbehaves on a share of the responses, as a plug-in."""

import asyncio
import math
import os
import random
import threading
from dataclasses import dataclass
from functools import partial

from rollwise.grading import ExactGrader, Grader, GraderSettings


@dataclass(frozen=True)
class Misgrading:
    """Right on all but a share of the pairs of response and answer, which depends on nothing else.

    Its faults must all come to what the fault `zero` comes to.
    """

    fault: str = "zero"
    rate: float = 0.1
    luck: int = 0

    def grade(self, response, answer):
        if random.Random(f"{self.luck} {response} {answer}").random() < self.rate:
            return FAULTS[self.fault]()
        return float(response.rpartition("=")[2].strip() == answer)


def fail():
    raise ValueError("it misbehaves")


FAULTS = {
    "zero": lambda: 0.0,
    "raises": fail,
    "hangs": threading.Event().wait,
    "returns no number": lambda: "none",
    "returns NaN": lambda: float("nan"),
    "ends its process": partial(os._exit, 1),
}


@dataclass(frozen=True)
class SlowSettings(GraderSettings):
    """Rewards come later, in any order; some never, if it hangs."""

    rate: float = 0.1
    hangs: bool = False

    def open(self, inputs):
        return Slow(self.rate, self.hangs)


class Slow(Grader):
    """Hands rewards over when it likes."""

    def __init__(self, rate, hangs):
        self.luck, self.rate, self.hangs = random.Random(os.environ["MISBEHAVIOUR"]), rate, hangs

    async def reward(self, response, answer):
        if self.luck.random() < self.rate:
            await asyncio.sleep(math.inf if self.hangs else self.luck.uniform(0, 0.05))
        return await ExactGrader().reward(response, answer)
