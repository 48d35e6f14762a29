"""A session's draws through an engine and a grader."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from rollwise.engines import Completion, Engine
from rollwise.engines.driver import RolloutCost, drive
from rollwise.engines.engine import Prompts
from rollwise.grading import Grader
from rollwise.sampling import RolloutSession
from rollwise.sampling.pool import Key


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

    def submit(completions: Sequence[Completion]) -> list[Future[float]]:
        return grader.submit(
            [completion.text for completion in completions],
            [answers[completion.draw.key] for completion in completions],
        )

    return drive(session, engine, prompts, submit)
