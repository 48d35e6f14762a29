"""A session's draws through an engine and a grader."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.engines import Completion, Engine
from rollwise.engines.driver import drive
from rollwise.engines.engine import Prompts
from rollwise.grading import Grader
from rollwise.sampling import RolloutSession
from rollwise.sampling.pool import Key


@dataclass
class RolloutCost:
    """What rollouts cost.

    Attributes:
        sampling: Seconds, those of grading apart.
        grading: Seconds.
        tokens: Of all responses, surplus included, and those cancelled on the way.
    """

    sampling: float = 0.0
    grading: float = 0.0
    tokens: int = 0

    def __add__(self, other: "RolloutCost") -> "RolloutCost":
        return RolloutCost(
            self.sampling + other.sampling,
            self.grading + other.grading,
            self.tokens + other.tokens,
        )


def roll_out(
    session: RolloutSession,
    engine: Engine,
    grader: Grader,
    prompts: Prompts,
    answers: Mapping[Key, str],
) -> RolloutCost:
    """Draw and grade until every prompt of `session` has ended; its pools hold completions.

    Args:
        session: What to draw.
        engine: Draws it.
        grader: Gives each response its reward.
        prompts: Token ids of each prompt.
        answers: The reference answer to each prompt.

    Raises:
        RuntimeError: The engine has nothing under way although draws are due.
    """
    began, grading = time.perf_counter(), 0.0

    def grade(completions: Sequence[Completion]) -> NDArray[np.float64]:
        nonlocal grading
        began = time.perf_counter()
        rewards = grader.grade(
            [completion.text for completion in completions],
            [answers[completion.draw.key] for completion in completions],
        )
        grading += time.perf_counter() - began
        return rewards

    tokens = drive(session, engine, prompts, grade)
    return RolloutCost(time.perf_counter() - began - grading, grading, tokens)
