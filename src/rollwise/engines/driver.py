"""A session's draws through an engine, to the end."""

from collections.abc import Callable, Iterable, Sequence

from rollwise.engines.engine import Completion, Engine, LostDraw, Prompts
from rollwise.sampling import Draw, RolloutSession


def drive(
    session: RolloutSession,
    engine: Engine,
    prompts: Prompts,
    grade: Callable[[Sequence[Completion]], Iterable[float]],
) -> int:
    """Draw and grade until every prompt of `session` has ended; its pools hold completions.

    A schedule that speculates fills the slots that are free; others submit all that they hand out,
    so that the engine can put it in order.

    Args:
        session: What to draw.
        engine: Draws it.
        prompts: Token ids of each prompt.
        grade: Gives each response its reward.

    Returns:
        The tokens of all responses, surplus included, and those cancelled on the way.

    Raises:
        RuntimeError: The engine has nothing under way although draws are due.
    """
    speculates = session.schedule.speculation < 1
    tokens = 0
    while not session.done:
        slots = engine.free_slots if speculates else None
        if slots != 0:
            engine.submit(session.next_draws(slots), prompts)
        outcomes = engine.wait()
        if not outcomes:
            raise RuntimeError(f"{type(engine).__name__} lost draws without saying so")
        completions = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
        tokens += sum(len(completion.tokens) for completion in completions)
        unwanted: set[Draw] = set()
        for outcome, reward in _graded(outcomes, completions, grade):
            if outcome.draw in unwanted:
                continue
            if isinstance(outcome, LostDraw):
                cancelled = session.record_failure(outcome.draw)
            else:
                cancelled = session.record(outcome.draw, reward, outcome)
            tokens += engine.cancel(cancelled)
            unwanted.update(cancelled)
    return tokens


def _graded(
    outcomes: Sequence[Completion | LostDraw],
    completions: Sequence[Completion],
    grade: Callable[[Sequence[Completion]], Iterable[float]],
) -> Iterable[tuple[Completion | LostDraw, float]]:
    """Put a reward beside each outcome; beside a lost draw it means nothing."""
    rewards = iter(grade(completions) if completions else ())
    for outcome in outcomes:
        yield outcome, 0.0 if isinstance(outcome, LostDraw) else next(rewards)
