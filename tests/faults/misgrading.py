"""A grader that misbehaves on a share of the responses, as a plug-in."""

import os
import random
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np

from rollwise.grading import ExactGrader, Grader, GraderSettings
from rollwise.step.session import finished


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
        return float(ExactGrader().grade([response], [answer])[0])


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
    """Hands rewards over from threads of its own."""

    def __init__(self, rate, hangs):
        self.luck, self.rate, self.hangs = random.Random(os.environ["MISBEHAVIOUR"]), rate, hangs

    def grade(self, responses, answers):
        return np.array([future.result() for future in self.submit(responses, answers)])

    def submit(self, responses, answers):
        rewards = ExactGrader().grade(responses, answers).tolist()
        return [self.later(r) if self.luck.random() < self.rate else finished(r) for r in rewards]

    def later(self, reward):
        late = Future()
        if not self.hangs:
            threading.Timer(self.luck.uniform(0, 0.05), give, [late, reward]).start()
        return late


def give(future, reward):
    if future.set_running_or_notify_cancel():
        future.set_result(reward)
