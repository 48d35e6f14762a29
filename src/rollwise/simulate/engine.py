"""The simulated engine: draws in virtual time, to compare schedules without a model."""

import heapq
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np

from rollwise.engines.batches import BatchEngine
from rollwise.sampling import Draw, RolloutSession
from rollwise.sampling.draws import Key
from rollwise.step.response import Response, RolloutCost
from rollwise.step.session import run_session

CORRECT, INCORRECT = "correct", "incorrect"
"""The text of every response."""


@dataclass(frozen=True)
class Lengths:
    """How many tokens a response has: ⌈median · e^(σz)⌉ with z standard normal, cut at `longest`.

    A response that was cut may still be correct.

    Attributes:
        median: The median length of correct responses before the cut, in tokens.
        sigma: The standard deviation of the logarithm, 0 (all alike) to 10.
        longest: The most tokens that a response has (an engine's `max_new_tokens`).
        incorrect_factor: How many times as long incorrect responses are, before the cut.
    """

    median: float
    sigma: float
    longest: int
    incorrect_factor: float = 1.0

    def length(self, uniform: float, correct: bool, key: Key = "") -> tuple[int, bool]:
        """Tokens at the quantile `uniform`, and whether the response was cut."""
        median = self.median if correct else self.median * self.incorrect_factor
        wanted = median * math.exp(self.sigma * NormalDist().inv_cdf(uniform))
        truncated = wanted > self.longest
        return (self.longest if truncated else math.ceil(wanted)), truncated


class LengthModel(Protocol):
    """How long responses are."""

    def length(self, uniform: float, correct: bool, key: Key) -> tuple[int, bool]:
        """Tokens of a response to `key`, by a number in (0, 1), and whether it was cut."""


class _Running(NamedTuple):
    """A response being drawn, from `began` to `ends` in tokens; the heap sorts by `ends`."""

    ends: float
    order: int
    began: float
    draw: Draw
    response: Response


class SimulatedEngine(BatchEngine):
    """An engine in virtual time, whose slots each draw one response at a time.

    Draws wait until a slot is free; a draw then takes `prefill` seconds, and `seconds_per_token`
    for each token. Its response depends only on its seed and its prompt's pass rate. Responses
    hold token 0 throughout, log-probability 0, and the text "correct" or "incorrect".

    Args:
        pass_rates: Prompt -> the probability that a response to it is correct.
        lengths: How long responses are: `Lengths`, or `RecordedLengths`.
        slots: The most responses drawn at a time.
        seconds_per_token: Virtual seconds that a token takes in its slot.
        prefill: Virtual seconds that a draw takes in its slot before its first token.

    Attributes:
        now: Virtual seconds since the engine was made.
        busy: Slot-seconds spent drawing so far; busy / (slots · now) is the utilisation.
        tokens: Of all draws that have ended, cancelled ones included.
    """

    slots: int
    rounds = 4

    def __init__(
        self,
        pass_rates: Mapping[Key, float],
        lengths: LengthModel,
        slots: int,
        seconds_per_token: float = 1.0,
        prefill: float = 0.0,
    ) -> None:
        super().__init__()
        self.pass_rates, self.lengths, self.slots = dict(pass_rates), lengths, slots
        self.seconds_per_token, self.prefill = seconds_per_token, prefill
        self.now = self.busy = 0.0
        self._position = 0.0  # tokens that a slot busy from the start would have drawn
        self.tokens, self._order = 0, count()
        self._waiting: OrderedDict[Draw, None] = OrderedDict()
        self._running: dict[Draw, _Running] = {}
        self._ends: list[_Running] = []  # a heap; what was cancelled stays in it until its end

    def _begin(self, draw: Draw, prompt: Sequence[int]) -> None:
        self._waiting[draw] = None

    def _advance(self) -> list[tuple[Draw, Response]]:
        """Advance time until draws complete; return all that do so at that instant."""
        self._fill()
        done: list[_Running] = []
        while self._ends and (not done or self._ends[0].ends == self._position):
            first = heapq.heappop(self._ends)
            if self._running.get(first.draw) is not first:  # cancelled
                continue
            passed = (first.ends - self._position) * self.seconds_per_token
            self.busy += passed * len(self._running)
            self.now += passed
            self._position = first.ends
            del self._running[first.draw]
            done.append(first)
        self.tokens += sum(len(running.response.tokens) for running in done)
        return [(running.draw, running.response) for running in done]

    def _abandon(self, draw: Draw) -> int:
        """Free the slot of a draw now; a waiting draw costs nothing, another the tokens so far."""
        self._waiting.pop(draw, None)
        if (stopped := self._running.pop(draw, None)) is None:
            return 0
        # A token that ends at this instant counts, however the position was rounded.
        passed = math.floor(self._position - stopped.began + 1e-6)
        drawn = min(max(passed, 0), len(stopped.response.tokens))
        self.tokens += drawn
        return drawn

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Do nothing: pass rates are fixed."""

    def _fill(self) -> None:
        """Give slots to draws before time advances: one cancelled at once has cost nothing."""
        while self._waiting and len(self._running) < self.slots:
            draw, _ = self._waiting.popitem(last=False)
            response = self.respond(draw)
            began = self._position + self.prefill / self.seconds_per_token
            running = _Running(
                began + len(response.tokens), next(self._order), began, draw, response
            )
            self._running[draw] = running
            heapq.heappush(self._ends, running)

    def respond(self, draw: Draw) -> Response:
        """Return what the engine answers to a draw."""
        luck, quantile = uniforms(draw.seed)
        correct = luck < self.pass_rates[draw.key]
        length, truncated = self.lengths.length(quantile, correct, draw.key)
        return blank_response(CORRECT if correct else INCORRECT, length, truncated)

    async def reward(self, draw: Draw, response: Response) -> float:
        """Return the reward of a response by its text (see `run_session`)."""
        return float(response.text == CORRECT)


def blank_response(text: str, length: int, truncated: bool) -> Response:
    """Make a response of `length` tokens, all 0, which are certain."""
    return Response([0] * length, np.zeros(length, np.float32), text, truncated)


def simulate(session: RolloutSession, engine: SimulatedEngine) -> RolloutCost:
    """Run a session with an idle engine and its own rewards; its cost is in virtual seconds."""
    began = engine.now
    cost = run_session(session, engine, {}, engine.reward)
    return replace(cost, sampling=engine.now - began, grading=0.0)


def uniforms(seed: int) -> tuple[float, float]:
    """Two random numbers in (0, 1), independent of each other and of those of other seeds."""
    digest = blake2b(b"%d" % seed, digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    # 52 bits plus a half, so that the result is neither 0 nor, by rounding, 1.
    return ((first >> 12) + 0.5) * 2.0**-52, ((second >> 12) + 0.5) * 2.0**-52
