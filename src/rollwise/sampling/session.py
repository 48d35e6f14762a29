"""A batch of prompts being sampled: what to draw next, and what came of it."""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from rollwise.sampling.checks import at_least
from rollwise.sampling.exits import ExitRule
from rollwise.sampling.pool import POSITIVE_THRESHOLD, ExitReason, Key, Pool
from rollwise.sampling.schedules import Rounds, Schedule


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
    kind = "str" if isinstance(key, str) else "int"
    name = f"{seed}\x1f{step}\x1f{kind}\x1f{key}\x1f{index}"
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass
class _Prompt:
    """The state of one prompt: its pool, and what is on the way to it."""

    pool: Pool
    issued: int = 0
    settled: int = 0
    arrived: dict[int, tuple[float, Any] | None] = field(default_factory=dict)


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

    Args:
        keys: The prompts, each once (strings or integers; NumPy's integers become Python's).
        exit_rule: When a prompt has been sampled enough.
        schedule: In what portions draws are handed out.
        seed: The run's seed.
        step: The training step; with the seed, the prompt and the index it makes a draw's seed.
        positive_threshold: A response is correct where its reward is above this.
        max_attempts: How often one draw is tried before it is given up as lost.

    Attributes:
        pools: Key -> Pool, in the order of `keys` and of what was added.
        failures: Draws reported as failed, attempts counted one by one.
        lost: Draws that failed `max_attempts` times; they are in no pool.

    Raises:
        ValueError: No keys, a key twice, a count below 1, or a seed or step below 0.
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
    ) -> None:
        at_least("seed", seed, 0)
        at_least("step", step, 0)
        at_least("max_attempts", max_attempts, 1)
        self.exit_rule = exit_rule
        self.schedule: Schedule = Rounds() if schedule is None else schedule
        self.seed, self.step, self.max_attempts = seed, step, max_attempts
        self.positive_threshold = positive_threshold
        self.pools: dict[Key, Pool] = {}
        self._prompts: dict[Key, _Prompt] = {}
        self._queue: deque[Draw] = deque()
        self._in_flight: set[Draw] = set()
        self._attempts: dict[Draw, int] = {}
        self.failures = 0
        self.lost = 0
        self.add(keys)

    def add(self, keys: Iterable[Key]) -> None:
        """Sample further prompts too, say in place of those that turned out to carry no signal.

        Raises:
            ValueError: No keys, or a key that the session has already; nothing is added.
            TypeError: A key that is neither a string nor an integer.
        """
        added: dict[Key, _Prompt] = {}
        for given in keys:
            key = _checked(given)
            if key in self._prompts or key in added:
                raise ValueError(f"a session takes each prompt once, got key {key!r} twice")
            added[key] = _Prompt(Pool(key, positive_threshold=self.positive_threshold))
        if not added:
            raise ValueError("keys must name at least one prompt, got none")
        self._prompts |= added
        self.pools |= {key: prompt.pool for key, prompt in added.items()}

    @property
    def done(self) -> bool:
        """Whether every prompt has ended."""
        return all(pool.exit_reason is not None for pool in self.pools.values())

    def next_draws(self, free_slots: int | None = None) -> list[Draw]:
        """Hand out draws, at most `free_slots` of them; [] once every prompt has ended.

        [] also means "record what is in flight first", which `done` tells apart.
        """
        if free_slots is not None:
            at_least("free_slots", free_slots, 1)
        if not self._queue:
            self._queue.extend(self._plan())
        count = len(self._queue) if free_slots is None else min(free_slots, len(self._queue))
        draws = [self._queue.popleft() for _ in range(count)]
        self._in_flight.update(draws)
        return draws

    def _plan(self) -> Iterable[Draw]:
        unresolved = [p for p in self._prompts.values() if p.pool.exit_reason is None]
        settled = [prompt.settled for prompt in unresolved]
        counts = self.schedule.plan(settled, in_flight=len(self._in_flight))
        for prompt, count in zip(unresolved, counts, strict=True):
            for index in range(prompt.issued, prompt.issued + count):
                key = prompt.pool.key
                yield Draw(key, index, draw_seed(self.seed, self.step, key, index))
            prompt.issued += count

    def record(self, draw: Draw, reward: float, response: Any = None) -> list[Draw]:
        """Report what came of a draw; returns the draws in flight that are no longer wanted.

        Raises:
            ValueError: A reward that is not finite, or a draw that is not in flight.
        """
        if not math.isfinite(reward):
            raise ValueError(f"the reward of {draw} must be finite, got {reward}")
        self._land(draw)
        return self._settle(draw, (float(reward), response))

    def record_failure(self, draw: Draw) -> list[Draw]:
        """Report that the engine or the grader lost a draw; returns what `record` returns.

        It is handed out again with the same seed; after `max_attempts` it is given up: the pool
        goes on without it, which leans towards responses that are not lost.

        Raises:
            ValueError: The draw is not in flight.
        """
        self._land(draw)
        self.failures += 1
        attempts = self._attempts[draw] = self._attempts.get(draw, 0) + 1
        if attempts < self.max_attempts:
            self._queue.append(draw)
            return []
        self.lost += 1
        return self._settle(draw, None)

    def _land(self, draw: Draw) -> None:
        if draw in self._in_flight:
            self._in_flight.remove(draw)
            return
        prompt = self._prompts.get(draw.key)
        if prompt is None:
            raise ValueError(f"{draw} is of no prompt of this session")
        if draw.seed != draw_seed(self.seed, self.step, draw.key, draw.index):
            raise ValueError(f"{draw} is of another session: this one gives it another seed")
        if draw in self._queue and draw in self._attempts:
            raise ValueError(f"{draw} has failed and waits to be handed out again")
        known = 0 <= draw.index < prompt.issued and draw not in self._queue
        raise ValueError(f"{draw} was {'recorded already' if known else 'never handed out'}")

    def _settle(self, draw: Draw, outcome: tuple[float, Any] | None) -> list[Draw]:
        """Take into the pool all outcomes that are next in draw order, until the rule is met."""
        prompt = self._prompts[draw.key]
        prompt.arrived[draw.index] = outcome
        while prompt.settled in prompt.arrived and prompt.pool.exit_reason is None:
            settled = prompt.arrived.pop(prompt.settled)
            prompt.settled += 1
            if settled is not None:
                prompt.pool.take(*settled)
            prompt.pool.exit_reason = self._exit_reason(prompt)
        return []

    def _exit_reason(self, prompt: _Prompt) -> ExitReason | None:
        pool = prompt.pool
        if not self.schedule.asks(prompt.settled):
            return None
        if bool(self.exit_rule.satisfied(pool.positives, pool.negatives)):
            return "satisfied"
        return "exhausted" if prompt.settled >= self.schedule.max_samples else None
