"""Run a session: draw its responses with an engine and grade them, until every prompt has ended."""

import asyncio
import inspect
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from rollwise import loops
from rollwise.errors import EngineError, PluginError
from rollwise.plugins import plugin_name, wrong_result
from rollwise.sampling import Draw, RolloutSession, Score
from rollwise.sampling.draws import Key
from rollwise.signals import alarm
from rollwise.step.response import LostDraw, Prompts, Response, RolloutCost

log = logging.getLogger(__name__)

ROUNDING = 1e-3
"""Log-probabilities may exceed 0 by this much, because of rounding."""

BLOCKED = 1.0
"""Seconds past the stall limit at which the event loop itself must be blocked."""

Reward = Callable[[Draw, Response], Awaitable[float]]
"""Grades a response; the reward may be a `Score`."""


def grade_with(
    grader: Any, answers: Mapping[Key, str], row: Callable[[Key], Mapping[str, Any]] | None = None
) -> Reward:
    """Make a `Reward` from a `rollwise.grading.Grader` and the reference answers.

    `row` returns what else is known of a prompt (`Problem.row`), for graders whose `reward` takes a
    `row`. A reward that the environment of an episode gave is kept.
    """
    if "row" not in inspect.signature(grader.reward).parameters:
        row = None

    async def reward(draw: Draw, response: Response) -> float:
        if response.reward is not None:
            return response.reward
        given = () if row is None else (row(draw.key),)
        found = await _awaitable(grader, "reward", response.text, answers[draw.key], *given)
        if not isinstance(found, Real) or not math.isfinite(found):
            raise wrong_result(grader, "reward", "a finite reward", found)
        return found if isinstance(found, Score) else float(found)

    return reward


def _awaitable(plugin: Any, method: str, *arguments: Any) -> Awaitable[Any]:
    """Call a method that must be `async`."""
    found = getattr(plugin, method)(*arguments)
    if not isinstance(found, Awaitable):
        raise wrong_result(plugin, method, "a coroutine, so define it by `async def`", found)
    return found


def run_session(
    session: RolloutSession, engine: Any, prompts: Prompts, reward: Reward, **limits: Any
) -> RolloutCost:
    """Do what `draw_session` does, from code that is not asynchronous."""
    return loops.run(draw_session(session, engine, prompts, reward, **limits))


async def draw_session(
    session: RolloutSession,
    engine: Any,
    prompts: Prompts,
    reward: Reward,
    *,
    stall_limit: float = math.inf,
    max_new_tokens: float = math.inf,
    too_old: Callable[[], bool] = lambda: False,
) -> RolloutCost:
    """Draw and grade until every prompt of `session` has ended; its pools then hold responses.

    Each draw is a task, which completes a response and grades it while others are drawn; a draw
    that is no longer needed is cancelled. With a schedule that streams, draws start as slots come
    free; with any other, all at once, and the engine decides their order. Nothing is in flight when
    this returns or raises.

    Args:
        session: What to draw.
        engine: Draws the responses; a `rollwise.engines.Engine`.
        prompts: Token ids of each prompt.
        reward: Grades a response (`grade_with`).
        stall_limit: Seconds without a response or a reward after which engine or grader count as
            hung.
        max_new_tokens: What the engine was told to cut responses at.
        too_old: Asked after each response; if it is true, prompts end with what they have.

    Raises:
        EngineError: The engine or the grader hangs.
        PluginError: It returned something other than a response, or one that is too long.
    """
    return await _Drawing(session, engine, prompts, reward, max_new_tokens).until_done(
        stall_limit, too_old
    )


def checked_response(engine: object, response: Any, max_new_tokens: float = math.inf) -> Response:
    """Return what an engine's `complete` returned; a `PluginError` if it is not valid.

    An engine that knows no log-probabilities reports none, or NaN.
    """
    due = ""
    if not isinstance(response, Response):
        due = "a rollwise.step.Response"
    elif not isinstance(response.tokens, Sequence):
        due = "a response whose tokens are a list of token ids"
    elif response.drawn > max_new_tokens and response.turns is None:
        limit = f"{max_new_tokens:g} tokens (`engine.max_new_tokens`)"
        due = f"a response within {limit}, not {len(response.tokens)}"
    else:
        logprobs = np.asarray(response.logprobs)
        if logprobs.size and logprobs.shape != (len(response.tokens),):
            due = "a response with a log-probability for each token"
        elif (
            logprobs.dtype.kind not in "fiu"
            or ((logprobs > ROUNDING) | (logprobs == -math.inf)).any()
        ):
            due = "a response whose log-probabilities are finite numbers, at most 0, or NaN"
    if due:
        raise wrong_result(engine, "complete", due, response)
    found: Response = response
    return found


@dataclass
class _Drawing:
    """A session being run: a task for each draw in flight."""

    _session: RolloutSession
    _engine: Any
    _prompts: Prompts
    _reward: Reward
    _max_new_tokens: float
    _tasks: dict[Draw, asyncio.Task[tuple[float, Response]]] = field(default_factory=dict)
    _cancelled: list[asyncio.Task[Any]] = field(default_factory=list)
    _ended: list[Draw] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _generating: set[Draw] = field(default_factory=set)
    _last_change: float = 0.0
    _reasons: Counter[str] = field(default_factory=Counter)
    _cost: RolloutCost = field(default_factory=RolloutCost)

    async def until_done(self, stall_limit: float, too_old: Callable[[], bool]) -> RolloutCost:
        began = self._last_change = time.perf_counter()
        stalled = EngineError(
            f"no response and no reward came for {stall_limit:g} s (`stall_limit`): "
            f"{type(self._engine).__name__} or the grader hangs; what was saved is kept, and the "
            "same command resumes from there"
        )
        with alarm(stall_limit + BLOCKED, stalled) as begin_anew:
            try:
                while not self._session.done:
                    self._start_draws()
                    await self._wait(stall_limit, stalled)
                    begin_anew()
                    ended, self._ended = self._ended, []
                    for draw in ended:
                        if draw in self._tasks:  # a reward recorded just now may make it surplus
                            self._cancel(self._record(draw, self._tasks.pop(draw)))
                    if not self._session.done and too_old():
                        self._cancel(self._session.end_all())
            finally:
                self._cancel(list(self._tasks))
                await asyncio.gather(*self._cancelled, return_exceptions=True)
        for reason, times in self._reasons.items():
            if times > 1:
                log.warning("%d draws were lost: %s", times, reason)
        self._cost.sampling = time.perf_counter() - began - self._cost.grading
        return self._cost

    def _start_draws(self) -> None:
        """Fill the free slots; a draw that is being graded takes up none."""
        free = None
        if self._session.schedule.streams and (slots := self._engine.slots) is not None:
            if not isinstance(slots, int | np.integer) or slots < 1:
                raise wrong_result(self._engine, "slots", "None or an integer from 1", slots)
            free = int(slots) - len(self._generating)
        if free is None or free > 0:
            for draw in self._session.next_draws(free):
                self._tasks[draw] = asyncio.create_task(self._respond(draw))

    async def _wait(self, stall_limit: float, stalled: EngineError) -> None:
        """Wait until a response or a reward has come."""
        if not self._tasks:
            schedule = plugin_name(self._session.schedule)
            raise PluginError(f"{schedule} hands out no draw although none is in flight")
        try:
            async with asyncio.timeout(None if stall_limit == math.inf else stall_limit):
                await self._news.wait()
        except TimeoutError:
            raise stalled from None
        self._news.clear()

    async def _respond(self, draw: Draw) -> tuple[float, Response]:
        """Complete and grade a draw."""
        try:
            response = await self._complete(draw)
            return await self._reward(draw, response), response
        finally:
            self._ended.append(draw)
            self._news.set()

    async def _complete(self, draw: Draw) -> Response:
        self._note_grading()
        self._generating.add(draw)
        try:
            prompt = self._prompts.get(draw.key, ())
            found = await _awaitable(self._engine, "complete", draw, prompt)
        except LostDraw as lost:
            self._cost.tokens += lost.tokens
            if draw in self._tasks:  # else it was cancelled, and this says what it had cost
                self._cost.failed_tokens += lost.tokens
            raise
        finally:
            self._note_grading()
            self._generating.discard(draw)
            self._news.set()
        response = checked_response(self._engine, found, self._max_new_tokens)
        response = replace(response, draw=draw) if response.draw is None else response
        self._cost.tokens += response.figures.tokens
        return response

    def _note_grading(self) -> None:
        """Add the time since the last change to that of grading, if nothing was being generated."""
        now = time.perf_counter()
        self._cost.grading += 0.0 if self._generating else now - self._last_change
        self._last_change = now

    def _record(self, draw: Draw, task: "asyncio.Task[tuple[float, Response]]") -> list[Draw]:
        """Record a draw that has ended; returns the surplus. Raises what the engine raised."""
        try:
            return self._session.record(draw, *task.result())
        except LostDraw as lost:
            self._reasons[lost.reason] += 1
            if self._reasons[lost.reason] == 1:
                what = "a draw was lost" + ("" if lost.final else ", and is drawn again")
                log.warning("%s: %s", what, lost.reason)
            return self._session.record_failure(draw, final=lost.final)

    def _cancel(self, draws: Sequence[Draw]) -> None:
        self._note_grading()
        for draw in draws:
            task = self._tasks.pop(draw)
            task.cancel()
            self._generating.discard(draw)
            self._cancelled.append(task)
