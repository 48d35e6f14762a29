"""A session's draws through an engine and a grader, to the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass

from rollwise.engines.engine import Completion, Engine, LostDraw, Prompts
from rollwise.sampling import Draw, RolloutSession

Submit = Callable[[Sequence[Completion]], Sequence[Future[float]]]
"""Begins to grade responses; their rewards are to come, in the same order."""


@dataclass
class RolloutCost:
    """What rollouts cost.

    Attributes:
        sampling: Seconds, those of grading apart.
        grading: Seconds in which rewards were waited for and nothing was drawn; what worker
            processes grade beside the drawing costs none.
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


def drive(session: RolloutSession, engine: Engine, prompts: Prompts, submit: Submit) -> RolloutCost:
    """Draw and grade until every prompt of `session` has ended; its pools hold completions.

    Responses are graded while others are drawn. A schedule that speculates fills the slots that
    are free; others submit all that they hand out, so that the engine can put it in order.

    Args:
        session: What to draw.
        engine: Draws it.
        prompts: Token ids of each prompt.
        submit: Begins to give responses their rewards.

    Raises:
        RuntimeError: The engine has nothing under way although draws are due.
    """
    began, drive = time.perf_counter(), _Drive(session, engine, prompts, submit)
    drive.to_the_end()
    drive.cost.sampling = time.perf_counter() - began - drive.cost.grading
    return drive.cost


class _Drive:
    """What is under way between a session, an engine and a grader."""

    def __init__(
        self, session: RolloutSession, engine: Engine, prompts: Prompts, submit: Submit
    ) -> None:
        self._session, self._engine, self._prompts = session, engine, prompts
        self._submit = submit
        self._speculates = session.schedule.speculation < 1
        self._grading: dict[Draw, tuple[Completion, Future[float]]] = {}
        self._unwanted: set[Draw] = set()
        self.cost = RolloutCost()

    def to_the_end(self) -> None:
        while not self._session.done:
            self._hand_out()
            outcomes = self._engine.wait()
            self._take(outcomes)
            self._record_graded(patiently=not outcomes)

    def _hand_out(self) -> None:
        slots = self._engine.free_slots if self._speculates else None
        if slots != 0 and (draws := self._session.next_draws(slots)):
            self._engine.submit(draws, self._prompts)

    def _take(self, outcomes: Sequence[Completion | LostDraw]) -> None:
        """Have what was drawn graded, and what was lost drawn again."""
        if not outcomes and not self._grading:
            raise RuntimeError(f"{type(self._engine).__name__} lost draws without saying so")
        drawn = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
        self.cost.tokens += sum(len(completion.tokens) for completion in drawn)
        # An engine may have finished what was cancelled in the meantime.
        drawn = [completion for completion in drawn if completion.draw not in self._unwanted]
        with self._grading_time():
            rewards = self._submit(drawn) if drawn else ()
        for completion, reward in zip(drawn, rewards, strict=True):
            self._grading[completion.draw] = completion, reward
        for outcome in outcomes:
            if isinstance(outcome, LostDraw) and outcome.draw not in self._unwanted:
                self._cancel(self._session.record_failure(outcome.draw))

    def _record_graded(self, patiently: bool) -> None:
        """Record the rewards that have come; `patiently`, at least one."""
        if patiently:
            rewards = [reward for _, reward in self._grading.values()]
            with self._grading_time():
                wait(rewards, return_when=FIRST_COMPLETED)
        for draw in [draw for draw, (_, reward) in self._grading.items() if reward.done()]:
            if draw in self._grading:  # what came before may have made it surplus
                completion, reward = self._grading.pop(draw)
                self._cancel(self._session.record(draw, reward.result(), completion))

    def _cancel(self, draws: Sequence[Draw]) -> None:
        for draw in draws:
            self._unwanted.add(draw)
            if draw in self._grading:
                self._grading.pop(draw)[1].cancel()
        self.cost.tokens += self._engine.cancel(draws)

    @contextmanager
    def _grading_time(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.cost.grading += time.perf_counter() - began
