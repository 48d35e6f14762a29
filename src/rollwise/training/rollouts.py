"""A session's draws through an engine and a grader."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rollwise.engines import Completion, Engine, LostDraw
from rollwise.engines.engine import Prompts
from rollwise.grading import Grader
from rollwise.sampling import RolloutSession
from rollwise.sampling.pool import Key


@dataclass(frozen=True)
class RolloutSeconds:
    """Where the time of a batch of rollouts went."""

    sampling: float
    grading: float

    def __add__(self, other: "RolloutSeconds") -> "RolloutSeconds":
        return RolloutSeconds(self.sampling + other.sampling, self.grading + other.grading)


def roll_out(
    session: RolloutSession,
    engine: Engine,
    grader: Grader,
    prompts: Prompts,
    answers: Mapping[Key, str],
) -> RolloutSeconds:
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
    while not session.done:
        engine.submit(session.next_draws(), prompts)
        outcomes = engine.wait()
        if not outcomes:
            raise RuntimeError(f"{type(engine).__name__} lost draws without saying so")
        for lost in (o for o in outcomes if isinstance(o, LostDraw)):
            engine.cancel(session.record_failure(lost.draw))
        completions = [o for o in outcomes if isinstance(o, Completion)]
        began_grading = time.perf_counter()
        rewards = grader.grade(
            [completion.text for completion in completions],
            [answers[completion.draw.key] for completion in completions],
        )
        grading += time.perf_counter() - began_grading
        for completion, reward in zip(completions, rewards, strict=True):
            engine.cancel(session.record(completion.draw, reward, completion))
    return RolloutSeconds(time.perf_counter() - began - grading, grading)
