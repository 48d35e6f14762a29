"""Run a session: draw its responses with an engine and grade them, until every prompt has ended."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollwise.errors import EngineError
from rollwise.plugins import plugin_name, wrong_result
from rollwise.sampling import Draw, RolloutSession
from rollwise.sampling.draws import Key
from rollwise.signals import raised_after
from rollwise.step.episodes import Episode
from rollwise.step.outcomes import Completion, LostDraw, Outcome, Prompts, Result, RolloutCost

log = logging.getLogger(__name__)

ROUNDING = 1e-3
"""Log-probabilities may exceed 0 by this much, because of rounding."""

Grade = Callable[[Sequence[Any]], Sequence[Future[float]]]
"""Starts grading outcomes and returns the future of each reward, in the same order."""


def grade_with(grader: Any, answers: Mapping[Key, str]) -> Grade:
    """Make `grade` for `run_session` from a `rollwise.grading.Grader` and reference answers.

    An episode's own reward is kept.
    """

    def grade(outcomes: Sequence[Outcome]) -> Sequence[Future[float]]:
        rewards = [Episode.of(outcome).reward for outcome in outcomes]
        ungraded = [o for o, reward in zip(outcomes, rewards, strict=True) if reward is None]
        texts = [outcome.text for outcome in ungraded]
        wanted = [answers[outcome.draw.key] for outcome in ungraded]
        graded = iter(grader.submit(texts, wanted) if ungraded else ())
        return [next(graded) if reward is None else finished(reward) for reward in rewards]

    return grade


def finished(reward: float) -> Future[float]:
    """Make a future that already has its result."""
    future: Future[float] = Future()
    future.set_result(reward)
    return future


def run_session(
    session: RolloutSession,
    engine: Any,
    prompts: Prompts,
    grade: Grade,
    stall_limit: float = math.inf,
    max_new_tokens: float = math.inf,
) -> RolloutCost:
    """Draw and grade until every prompt of `session` has ended; its pools then hold completions.

    Responses are graded while others are drawn. With a schedule that streams, draws are submitted
    as slots come free; with any other, all at once, and the engine decides their order.

    Args:
        session: What to draw.
        engine: Draws the responses; a `rollwise.engines.Engine`.
        prompts: Token ids of each prompt.
        grade: Starts grading completions (`grade_with`).
        stall_limit: Seconds without a response or a reward after which engine or grader count as
            hung. Checked in the main thread alone.
        max_new_tokens: What the engine was told to cut completions at.

    Raises:
        EngineError: The engine has nothing in flight although draws are due, or hangs.
        PluginError: It returned something other than the results due, or too long a completion.
    """
    began = time.perf_counter()
    run = _SessionRun(session, engine, prompts, grade, max_new_tokens)
    run.until_done(stall_limit)
    run.cost.sampling = time.perf_counter() - began - run.cost.grading
    return run.cost


def checked_results(
    engine: object, results: Any, max_new_tokens: float = math.inf
) -> Sequence[Result]:
    """Return the results of an engine's `wait`; a `PluginError` if they are not valid."""
    if not isinstance(results, Iterable):
        raise wrong_result(engine, "wait", "a list of completions", results)
    found = list(results)
    for result in found:
        if due := _misfit(result, max_new_tokens):
            raise wrong_result(engine, "wait", due, result)
    return found


def checked_tokens(engine: object, drawn: Any) -> int:
    """Return the result of an engine's `cancel`; a `PluginError` if not a number of tokens."""
    if not isinstance(drawn, int | np.integer) or drawn < 0:
        due = "the number of tokens that were drawn for what it cancels, 0 if it is unknown"
        raise wrong_result(engine, "cancel", due, drawn)
    return int(drawn)


def _misfit(result: Result, max_new_tokens: float) -> str:
    """Say what is due in place of a result whose parts have the wrong type or shape; "" if nothing.

    An engine that knows no log-probabilities reports none, or NaN.
    """
    if not hasattr(result, "draw"):
        return "completions, episodes and lost draws"
    if not isinstance(result.draw, Draw):
        return "results whose draw is one of those submitted"
    if not isinstance(result, Completion):
        return ""
    tokens, logprobs = result.tokens, np.asarray(result.logprobs)
    if not isinstance(tokens, Sequence):
        return "completions whose tokens are a list of token ids"
    if len(tokens) > max_new_tokens:
        return (
            f"completions within {max_new_tokens:g} tokens (`engine.max_new_tokens`), not "
            f"{len(tokens)}"
        )
    if logprobs.size and logprobs.shape != (len(tokens),):
        return "completions with a log-probability for each token"
    if logprobs.dtype.kind not in "fiu" or np.isinf(logprobs).any() or (logprobs > ROUNDING).any():
        return "completions whose log-probabilities are finite numbers, at most 0, or NaN"
    return ""


@dataclass
class _SessionRun:
    """A session being run: its draws and gradings in flight."""

    _session: RolloutSession
    _engine: Any
    _prompts: Prompts
    _grade: Grade
    _max_new_tokens: float
    _grading: dict[Draw, tuple[Outcome, Future[float]]] = field(default_factory=dict)
    _cancelled: set[Draw] = field(default_factory=set)
    _repeats: bool = False
    _in_engine: set[Draw] = field(default_factory=set)
    cost: RolloutCost = field(default_factory=RolloutCost)

    def until_done(self, stall_limit: float) -> None:
        stalled = EngineError(
            f"no response and no reward came for {stall_limit:g} s (`stall_limit`): "
            f"{type(self._engine).__name__} or the grader hangs; what was saved is kept, and the "
            "same command resumes from there"
        )
        while not self._session.done:
            self._submit_draws()
            with raised_after(stall_limit, stalled):
                results = checked_results(self._engine, self._engine.wait(), self._max_new_tokens)
                self._grade_results(results)
                self._record_rewards(wait_for_one=not results)

    def _submit_draws(self) -> None:
        """Fill the free slots."""
        slots: Any = self._engine.free_slots if self._session.schedule.streams else None
        fits = slots is None or (isinstance(slots, int | np.integer) and slots >= 0)
        if not fits:
            raise wrong_result(self._engine, "free_slots", "None or an integer from 0", slots)
        if slots != 0 and (draws := self._session.next_draws(slots)):
            self._in_engine.update(draws)
            self._engine.submit(draws, self._prompts)

    def _grade_results(self, results: Sequence[Result]) -> None:
        """Start grading completions; report lost draws, so that they are drawn again."""
        if not results and not self._grading:
            raise EngineError(f"{plugin_name(self._engine)} lost draws without reporting them")
        results = [result for result in results if self._is_first(result.draw)]
        completions = [result for result in results if not isinstance(result, LostDraw)]
        failed = sum(result.tokens for result in results if isinstance(result, LostDraw))
        self.cost.tokens += failed + sum(Episode.of(done).usage.tokens for done in completions)
        self.cost.failed_tokens += failed
        # An engine may have completed a draw before it was cancelled.
        wanted = [c for c in completions if c.draw not in self._cancelled]
        with self._grading_time():
            rewards = self._grade(wanted) if wanted else ()
        for completion, reward in zip(wanted, rewards, strict=True):
            self._grading[completion.draw] = completion, reward
        for result in results:
            if isinstance(result, LostDraw) and result.draw not in self._cancelled:
                self._cancel(self._session.record_failure(result.draw, final=result.final))

    def _is_first(self, draw: Draw) -> bool:
        """Say whether this is the first answer to a draw; a further one does not count."""
        is_first = draw in self._in_engine or draw in self._cancelled
        if not is_first and not self._repeats:
            self._repeats = True
            log.warning(
                "%s has answered draw %d of prompt %r twice; the first answer counts",
                type(self._engine).__name__,
                draw.index,
                draw.key,
            )
        self._in_engine.discard(draw)
        return is_first

    def _record_rewards(self, wait_for_one: bool) -> None:
        """Record the rewards that are ready, or wait until at least one is."""
        if wait_for_one:
            rewards = [reward for _, reward in self._grading.values()]
            with self._grading_time():
                wait(rewards, return_when=FIRST_COMPLETED)
        graded = [draw for draw, (_, reward) in self._grading.items() if reward.done()]
        for draw in graded:
            if draw in self._grading:  # a reward recorded just now may have made it surplus
                completion, reward = self._grading.pop(draw)
                self._cancel(self._session.record(draw, reward.result(), completion))

    def _cancel(self, draws: Sequence[Draw]) -> None:
        self._in_engine.difference_update(draws)
        for draw in draws:
            self._cancelled.add(draw)
            if draw in self._grading:
                self._grading.pop(draw)[1].cancel()
        self.cost.tokens += checked_tokens(self._engine, self._engine.cancel(draws))

    @contextmanager
    def _grading_time(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.cost.grading += time.perf_counter() - began
