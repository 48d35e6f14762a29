"""A batch of prompts being sampled: what to draw next, and what came of it."""

import math
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.sampling.checks import at_least
from rollwise.sampling.exits import ExitRule
from rollwise.sampling.outlook import outlook_of, rounded_priors
from rollwise.sampling.pool import POSITIVE_THRESHOLD, ExitReason, Key, Pool
from rollwise.sampling.progress import Outcome, Progress
from rollwise.sampling.schedules import Rounds, Schedule
from rollwise.sampling.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Draw:
    """One response to be drawn: the `index`-th of the prompt `key`, from the random `seed`."""

    key: Key
    index: int
    seed: int


def draw_seed(seed: int, step: int, key: Key, index: int) -> int:
    """Hash a run's seed, the step, the prompt and the draw's index to 63 random bits.

    Neighbouring draws get unrelated seeds: servers in use add a sample's index to the seed they
    are given, so that consecutive seeds would share all but one of their samples. Equal keys get
    equal seeds, whether they are Python's or NumPy's; 1 and "1" are different keys.
    """
    return _hashed(_seed_name(seed, step, key), index)


def _seed_name(seed: int, step: int, key: Key) -> str:
    """Spell out what the seeds of a prompt's draws are hashed from, before the index."""
    kind = "str" if isinstance(key, str) else "int"
    return f"{seed}\x1f{step}\x1f{kind}\x1f{key}\x1f"


def _hashed(name: str, index: int) -> int:
    whole = f"{name}{index}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "big") >> 1


def _checked(key: Key) -> Key:
    if isinstance(key, Integral) and not isinstance(key, bool):
        return int(key)
    if not isinstance(key, str):
        raise TypeError(f"a key must be a string or an integer, got {key!r}")
    return key


class RolloutSession:
    """Samples a batch of prompts until each has enough signal, or has used its budget.

    The session knows no engine and no clock: ask it for draws, generate and grade them in any
    order, and record each. Rewards enter a pool in draw order, so that the pool is the same
    whatever the timing. It can be pickled at any moment.

        while draws := session.next_draws():
            for draw in draws:
                response = generate(draw)
                session.record(draw, reward=grade(response), response=response)

    With an engine of many slots, and a schedule that hands out draws before it is known that they
    are needed (`Streamed`):

        while not session.done:
            engine.submit(session.next_draws(free_slots=engine.free_slots))
            draw, response = engine.wait()
            engine.cancel(session.record(draw, reward=grade(response), response=response))

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        exit_rule: When a prompt has been sampled enough.
        schedule: In what portions draws are handed out.
        seed: The run's seed.
        step: The training step; with the seed, the prompt and the index it makes a draw's seed.
        positive_threshold: A response is correct where its reward is above this.
        max_attempts: How often one draw is tried before it is given up as lost.
        priors: What is believed of each prompt's pass rate: α and β of a Beta distribution, shape
            (P, 2), say from a prompt sampler; by default (1, 1), nothing. They order the draws of
            `Streamed`, and a rule that gives up begins from them. Rounded, so that prompts share
            tables: the mean to 1/32, the strength α + β to a power of 2.
        budgets: The most draws of each prompt, shape (P,), say from an allocation; by default, and
            at most, the schedule's.
        total_draws: The most draws of the whole batch, surplus included. A prompt that is cut
            short by it is `exhausted`; which prompts that are hangs, under `Streamed`, on the
            order of arrival.

    Attributes:
        pools: Key -> Pool, in the order of `keys` and of what was added.
        failures: Draws reported as failed, attempts counted one by one.
        lost: Draws that failed `max_attempts` times; they are in no pool.
        surplus: Draws handed out beyond a prompt's exit: cancelled, or dropped if they were done.

    Raises:
        ValueError: No keys, a key twice, a count below 1, a seed or step below 0, priors or
            budgets that do not fit the keys, or `total_draws` below one draw a prompt.
        TypeError: A key that is neither a string nor an integer (a bool is neither).
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
        total_draws: int | None = None,
    ) -> None:
        at_least("seed", seed, 0)
        at_least("step", step, 0)
        at_least("max_attempts", max_attempts, 1)
        self.exit_rule = exit_rule
        self.schedule: Schedule = Rounds() if schedule is None else schedule
        self.seed, self.step, self.max_attempts = seed, step, max_attempts
        self.positive_threshold = positive_threshold
        self.total_draws = total_draws
        self.pools: dict[Key, Pool] = {}
        self._prompts: dict[Key, Progress] = {}
        self._dispatcher = self.schedule.dispatcher()
        self._retries: deque[Draw] = deque()
        self._attempts: dict[Draw, int] = {}
        self._unresolved = 0
        self._issued = 0
        self.failures = 0
        self.lost = 0
        self.surplus = 0
        self.add(keys, priors=priors, budgets=budgets)

    def add(
        self,
        keys: Iterable[Key],
        *,
        priors: ArrayLike | None = None,
        budgets: ArrayLike | None = None,
    ) -> None:
        """Sample further prompts too, say in place of those that turned out to carry no signal.

        Raises:
            ValueError: No keys, or a key that the session has already, or what the constructor
                refuses; nothing is added.
            TypeError: A key that is neither a string nor an integer.
        """
        added: dict[Key, None] = {}
        for given in keys:
            key = _checked(given)
            if key in self._prompts or key in added:
                raise ValueError(f"a session takes each prompt once, got key {key!r} twice")
            added[key] = None
        if not added:
            raise ValueError("keys must name at least one prompt, got none")
        if self.total_draws is not None:
            at_least("total_draws", self.total_draws, self._issued + len(added))
        stoppings = self._stoppings(len(added), priors, budgets)
        for key, stopping in zip(added, stoppings, strict=True):
            pool = Pool(key, positive_threshold=self.positive_threshold)
            pool.stopping = stopping
            outlook = outlook_of(stopping, self.schedule.speculation)
            seed_name = _seed_name(self.seed, self.step, key)
            prompt = Progress(pool, outlook, place=len(self._prompts), seed_name=seed_name)
            self._prompts[key], self.pools[key] = prompt, pool
            self._dispatcher.changed(prompt)
        self._unresolved += len(added)

    def _stoppings(
        self, count: int, priors: ArrayLike | None, budgets: ArrayLike | None
    ) -> Iterable[Stopping]:
        most = self.schedule.max_samples
        budgets_P = np.full(count, most) if budgets is None else np.asarray(budgets)
        if budgets_P.shape != (count,) or not np.issubdtype(budgets_P.dtype, np.integer):
            raise ValueError(f"budgets must be {count} integers, got {budgets!r}")
        if not np.all((budgets_P >= 1) & (budgets_P <= most)):
            raise ValueError(
                f"budgets must lie between 1 and the schedule's {most} draws, "
                f"got {budgets_P.min()} to {budgets_P.max()}"
            )
        priors_P2 = np.ones((count, 2)) if priors is None else np.asarray(priors, dtype=float)
        if priors_P2.shape != (count, 2):
            raise ValueError(f"priors must have shape ({count}, 2), got {priors_P2.shape}")
        if not np.all((priors_P2 > 0) & np.isfinite(priors_P2)):
            raise ValueError("priors must be finite and above 0")
        if priors is not None:
            priors_P2 = rounded_priors(priors_P2)
        made: dict[tuple[int, float, float], Stopping] = {}
        for budget, (alpha, beta) in zip(budgets_P.tolist(), priors_P2.tolist(), strict=True):
            kind = (budget, alpha, beta)
            if kind not in made:
                made[kind] = Stopping(self.exit_rule, self.schedule, budget, (alpha, beta))
            yield made[kind]

    @property
    def draws_left(self) -> int:
        """Draws that `total_draws` leaves; without it, as good as endless."""
        return sys.maxsize if self.total_draws is None else self.total_draws - self._issued

    @property
    def done(self) -> bool:
        """Whether every prompt has ended."""
        return self._unresolved == 0

    def next_draws(self, free_slots: int | None = None) -> list[Draw]:
        """Hand out draws, at most `free_slots` of them; [] once every prompt has ended.

        [] also means "record what is in flight first", which `done` tells apart. Where the number
        of free slots is not given, no draw is handed out that might turn out surplus.
        """
        if free_slots is not None:
            at_least("free_slots", free_slots, 1)
        speculate = free_slots is not None
        draws: list[Draw] = []
        while free_slots is None or len(draws) < free_slots:
            draw = self._next_retry() or self._next_new(speculate)
            if draw is None:
                break
            draws.append(draw)
        return draws

    def _next_retry(self) -> Draw | None:
        while self._retries:
            draw = self._retries.popleft()
            if self._wants(draw):
                self._prompts[draw.key].flying[draw.index] = draw
                return draw
        return None

    def _next_new(self, speculate: bool) -> Draw | None:
        left = self.draws_left
        prompt = self._dispatcher.next(left, speculate) if left else None
        if prompt is None:
            return None
        index = prompt.issued
        draw = Draw(prompt.pool.key, index, _hashed(prompt.seed_name, index))
        prompt.flying[index] = draw
        prompt.issued += 1
        prompt.in_flight += 1
        self._issued += 1
        self._dispatcher.changed(prompt)
        if left == 1:
            self._end_what_waits()
        return draw

    def _end_what_waits(self) -> None:
        """The batch's budget is spent: end the prompts that nothing is on the way to."""
        for prompt in self._prompts.values():
            if not prompt.ended and prompt.issued == prompt.settled:
                self._end(prompt, prompt.exit_reason(cut_short=True) or "exhausted")

    def record(self, draw: Draw, reward: float, response: Any = None) -> list[Draw]:
        """Report what came of a draw; returns the draws in flight that are no longer wanted.

        Those are to be cancelled, and not recorded.

        Raises:
            ValueError: A reward that is not finite, or a draw that is not in flight.
        """
        if not math.isfinite(reward):
            raise ValueError(f"the reward of {draw} must be finite, got {reward}")
        return self._arrive(self._land(draw), draw, (float(reward), response))

    def record_failure(self, draw: Draw) -> list[Draw]:
        """Report that the engine or the grader lost a draw; returns what `record` returns.

        It is handed out again with the same seed; after `max_attempts` it is given up: the pool
        goes on without it, which leans towards responses that are not lost.

        Raises:
            ValueError: The draw is not in flight.
        """
        prompt = self._land(draw)
        self.failures += 1
        attempts = self._attempts[draw] = self._attempts.get(draw, 0) + 1
        if attempts < self.max_attempts:
            self._retries.append(draw)
            return []
        self.lost += 1
        return self._arrive(prompt, draw, None)

    def _land(self, draw: Draw) -> Progress:
        prompt = self._prompts.get(draw.key)
        if prompt is None:
            raise ValueError(f"{draw} is of no prompt of this session")
        found = prompt.flying.get(draw.index)
        if found is draw or found == draw:
            del prompt.flying[draw.index]
            return prompt
        if draw.seed != draw_seed(self.seed, self.step, draw.key, draw.index):
            raise ValueError(f"{draw} is of another session: this one gives it another seed")
        if draw in self._retries:
            raise ValueError(f"{draw} has failed and waits to be handed out again")
        if not 0 <= draw.index < prompt.issued:
            raise ValueError(f"{draw} was never handed out")
        if draw.index < prompt.settled or draw.index in prompt.arrived:
            raise ValueError(f"{draw} was recorded already")
        raise ValueError(f"{draw} was to be cancelled: it is surplus, its prompt does without it")

    def _wants(self, draw: Draw) -> bool:
        prompt = self._prompts[draw.key]
        return not prompt.ended and draw.index < prompt.wanted

    def _arrive(self, prompt: Progress, draw: Draw, outcome: Outcome) -> list[Draw]:
        """Take in an outcome and those that wait for it, or have it wait for an earlier draw."""
        prompt.learn(outcome)
        if draw.index > prompt.settled:
            prompt.hold(draw.index, outcome)
        else:
            self._settle(prompt, outcome)
            while prompt.settled in prompt.arrived:
                self._settle(prompt, prompt.arrived.pop(prompt.settled))
        surplus = prompt.take_surplus()
        self._dispatcher.changed(prompt)
        return surplus

    def _settle(self, prompt: Progress, outcome: Outcome) -> None:
        """Take the next outcome in draw order into the pool, and end the prompt if it is time."""
        prompt.settled += 1
        if outcome is not None:
            prompt.pool.take(*outcome)
        none_left = prompt.issued == prompt.settled and not self.draws_left
        reason = prompt.exit_reason(cut_short=none_left)
        if reason is not None:
            self._end(prompt, reason)

    def _end(self, prompt: Progress, reason: ExitReason) -> None:
        prompt.end(reason)
        self.surplus += prompt.issued - prompt.settled
        self._unresolved -= 1
