"""A batch of prompts being sampled: which responses to draw next, and their rewards so far."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import at_least, within
from rollwise.sampling.draws import Draw, Key, index_by_key
from rollwise.sampling.exits import ExitRule
from rollwise.sampling.pool import POSITIVE_THRESHOLD, Graded, Pool, SampledPrompt
from rollwise.sampling.schedules import Dispatcher, Rounds, Schedule
from rollwise.sampling.stopping import Stopping, stopping_of_prompts


class RolloutSession:
    """Samples a batch of prompts until each has enough signal, or has used up its budget.

    The session knows no engine and no clock: ask it for draws, generate and grade them in any
    order, and record each. Rewards enter a pool in draw order, so the pool does not depend on the
    timing. A session can be pickled at any moment.

        while draws := session.next_draws():
            for draw in draws:
                response = generate(draw)
                session.record(draw, reward=grade(response), response=response)

    With a schedule that streams (`Streamed`), ask for as many draws as the engine has free slots
    while the session is not `done`, and cancel the draws that `record` returns.

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        exit_rule: When a prompt has been sampled enough.
        schedule: When draws are handed out; by default the published `Rounds`.
        seed: The run's seed.
        step: The training step; with the seed, the prompt and the index it makes a draw's seed.
        positive_threshold: A response is correct if its reward, or its `Score`'s `acc`, is above.
        max_attempts: How often a draw is tried before it is lost.
        priors: α and β of a Beta distribution of each prompt's pass rate, shape (P, 2); by default
            1 and 1, which is flat. They order the draws of `Streamed` and decide, with the
            responses, when to give up. So that prompts share tables, both round the mean to 1/32
            and α + β to a power of 2; pools keep them as they are, for baselines.
        budgets: The most draws of each prompt, shape (P,), for instance from an allocation; by
            default, and at most, the schedule's.
        give_up_below: End a prompt as `futile` when the rule is asked and the probability that it
            will be satisfied within the budget, which is Beta-binomial, is below this.

    Attributes:
        pools: Key -> Pool, in the order of `keys` and of what was added.
        failures: Failed attempts at draws.
        lost: Draws that failed `max_attempts` times; they are in no pool.
        surplus: Draws handed out beyond a prompt's exit: cancelled, or dropped if already done.

    Raises:
        ValueError: No keys, a key twice, or an argument out of its range or unfit for the keys.
        TypeError: A key that is not a string or an integer, or a rule that is not an `ExitRule`.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        exit_rule: ExitRule,
        schedule: Schedule | None = None,
        seed: int = 0,
        step: int = 0,
        positive_threshold: float = POSITIVE_THRESHOLD,
        max_attempts: int = 3,
        *,
        priors: ArrayLike | None = None,
        budgets: ArrayLike | None = None,
        give_up_below: float = 0.0,
    ) -> None:
        within("give_up_below", give_up_below, "[0, 1]")
        at_least("seed", seed, 0)
        at_least("step", step, 0)
        at_least("max_attempts", max_attempts, 1)
        self.exit_rule = exit_rule
        self.schedule: Schedule = Rounds() if schedule is None else schedule
        self.seed, self.step, self.max_attempts = seed, step, max_attempts
        self.positive_threshold, self.give_up_below = positive_threshold, give_up_below
        self.pools: dict[Key, Pool] = {}
        self._prompts: dict[Key, SampledPrompt] = {}
        self._dispatcher = self.schedule.dispatcher()
        if not isinstance(self._dispatcher, Dispatcher):
            wanted = "an object with the methods add, changed and next"
            raise wrong_result(self.schedule, "dispatcher", wanted, self._dispatcher)
        self._repeats: deque[Draw] = deque()
        self._attempts: dict[Draw, int] = {}
        self._unresolved = 0
        self.failures = self.lost = self.surplus = 0
        self.add(keys, priors=priors, budgets=budgets)

    def add(
        self,
        keys: Iterable[Key],
        *,
        priors: ArrayLike | None = None,
        budgets: ArrayLike | None = None,
    ) -> None:
        """Sample more prompts; takes, and refuses, what the constructor does.

        A key that the session already has is refused, and then nothing is added.
        """
        added = index_by_key(keys, self._prompts)
        if not added:
            raise ValueError("keys must name at least one prompt, got none")
        most = self.schedule.max_samples
        like = Stopping(self.exit_rule, self.schedule, most, give_up_below=self.give_up_below)
        stopping = list(stopping_of_prompts(like, len(added), priors, budgets))
        believed = [None] * len(added) if priors is None else np.asarray(priors, float).tolist()
        for key, own, prior in zip(added, stopping, believed, strict=True):
            pool = Pool(key, positive_threshold=self.positive_threshold)
            pool.stopping, pool.prior = own, prior and tuple(prior)
            prompt = SampledPrompt(pool, own, len(self._prompts), self.seed, self.step)
            self._prompts[key], self.pools[key] = prompt, pool
            self._dispatcher.add(prompt)
        self._unresolved += len(added)

    @property
    def in_flight(self) -> list[Draw]:
        """The draws handed out and not yet reported."""
        return [draw for prompt in self._prompts.values() for draw in prompt.in_flight.values()]

    @property
    def done(self) -> bool:
        """Whether every prompt has ended."""
        return self._unresolved == 0

    def next_draws(self, free_slots: int | None = None) -> list[Draw]:
        """Hand out draws, at most `free_slots` of them; [] once every prompt has ended.

        [] may also mean "record what is in flight first"; `done` tells the two apart. Without
        `free_slots`, only draws that are certain to be needed are handed out.
        """
        if free_slots is not None:
            at_least("free_slots", free_slots, 1)
        draws: list[Draw] = []
        while free_slots is None or len(draws) < free_slots:
            draw = self._next_repeat() or self._next_new(ahead=free_slots is not None)
            if draw is None:
                break
            draws.append(draw)
        return draws

    def _next_repeat(self) -> Draw | None:
        while self._repeats:
            draw = self._repeats.popleft()
            prompt = self._prompts[draw.key]
            if not prompt.ended:
                prompt.in_flight[draw.index] = draw
                return draw
        return None

    def _next_new(self, ahead: bool) -> Draw | None:
        prompt = None if self.done else self._dispatcher.next(ahead)
        if prompt is None:
            return None
        if not isinstance(prompt, SampledPrompt) or prompt.issued >= prompt.limit:
            wanted = "a prompt of the session whose `issued` is below its `limit`, or None"
            raise wrong_result(self._dispatcher, "next", wanted, prompt)
        draw = prompt.issue()
        self._dispatcher.changed(prompt)
        return draw

    def record(self, draw: Draw, reward: float, response: Any = None) -> list[Draw]:
        """Report a reward, which may be a `Score`; returns the draws in flight that are surplus.

        Cancel these: they are no longer needed.

        Raises:
            ValueError: A reward that is not finite, or a draw that is not in flight.
        """
        if not math.isfinite(reward):
            raise ValueError(f"the reward of {draw} must be finite, got {reward}")
        return self._receive(self._released(draw), draw, (reward, response))

    def record_failure(self, draw: Draw, final: bool = False) -> list[Draw]:
        """Report that the engine or the grader lost a draw; returns what `record` returns.

        It is handed out again with the same seed. After `max_attempts`, or at once if the failure
        is `final`, it is lost: it counts against the budget, but is in no pool, which is then
        biased towards responses that are not lost.

        Raises:
            ValueError: The draw is not in flight.
        """
        prompt = self._released(draw)
        self.failures += 1
        attempts = self._attempts[draw] = self._attempts.get(draw, 0) + 1
        if attempts < self.max_attempts and not final:
            self._repeats.append(draw)
            return []
        self.lost += 1
        return self._receive(prompt, draw, None)

    def _released(self, draw: Draw) -> SampledPrompt:
        """Take a draw out of those in flight, and return its prompt."""
        prompt = self._prompts.get(draw.key)
        if prompt is None or prompt.in_flight.get(draw.index) != draw:
            raise ValueError(
                f"{draw} is not in flight: it is of another session, was recorded or has failed "
                "already, or is surplus, which was to be cancelled"
            )
        del prompt.in_flight[draw.index]
        return prompt

    def _receive(self, prompt: SampledPrompt, draw: Draw, graded: Graded) -> list[Draw]:
        surplus = prompt.receive(draw.index, graded)
        self._note(prompt)
        return surplus

    def _note(self, prompt: SampledPrompt) -> None:
        """Tell the dispatcher that a prompt has changed; count its end."""
        if prompt.ended:
            self.surplus += prompt.issued - prompt.processed
            self._unresolved -= 1
        self._dispatcher.changed(prompt)

    def end_all(self) -> list[Draw]:
        """End every prompt with what is in its pool; returns the draws in flight, to be cancelled.

        They count as surplus, as do responses that wait for an earlier draw. Pools that are ended
        for an outside reason, such as the time, are biased towards responses that finish early.
        """
        surplus: list[Draw] = []
        for prompt in self._prompts.values():
            if not prompt.ended:
                surplus += prompt.end(prompt.reason_to_end(last=True) or "exhausted")
                self._note(prompt)
        self._repeats.clear()
        return surplus
