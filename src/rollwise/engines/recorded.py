"""Responses that were recorded before: their rewards and lengths, in place of a model's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.engines.simulated import Lengths, SimulatedEngine, SimulatedResponse, uniforms
from rollwise.sampling import Draw, draw_seed
from rollwise.sampling.draws import Key

LARGEST = 1e9
"""A larger reward is a slip: sums of squares of such rewards are not finite."""


@dataclass(frozen=True)
class Recorded:
    """The D responses that were drawn for one prompt, in order.

    Attributes:
        rewards: The reward of each, shape (D,), D ≥ 1.
        tokens: The number of tokens of each, shape (D,); empty if unknown.
    """

    rewards: NDArray[np.float64]
    tokens: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.rewards) or not (np.abs(self.rewards) <= LARGEST).all():
            raise ValueError(
                f"there must be rewards, all finite and at most {LARGEST:g} in size, got "
                f"{self.rewards.tolist()}"
            )
        if len(self.tokens) not in (0, len(self.rewards)):
            raise ValueError(
                f"there must be as many token counts as rewards, got {len(self.tokens)} and "
                f"{len(self.rewards)}"
            )
        if len(self.tokens) and self.tokens.min() < 1:
            raise ValueError(f"a response has at least 1 token, got {self.tokens.min()}")

    def __len__(self) -> int:
        return len(self.rewards)

    def correct(self, threshold: float) -> NDArray[np.bool_]:
        """Which responses are correct, shape (D,)."""
        return self.rewards > threshold


@dataclass(frozen=True)
class RecordedLengths:
    """Lengths drawn from those that were recorded for the same prompt, with replacement.

    Only responses that are likewise correct (a reward above `threshold`), or likewise incorrect,
    count; if a prompt has none of that kind, all of its responses do.
    """

    prompts: Mapping[Key, Recorded]
    longest: int
    threshold: float

    def length(self, uniform: float, correct: bool, key: Key) -> tuple[int, bool]:
        recorded = self.prompts[key]
        of_kind = recorded.tokens[recorded.correct(self.threshold) == correct]
        lengths = of_kind if len(of_kind) else recorded.tokens
        wanted = int(lengths[int(uniform * len(lengths))])
        return min(wanted, self.longest), wanted > self.longest


class ReplayEngine(SimulatedEngine):
    """A simulated engine that replays recorded responses, each at most once per visit.

    A visit to a prompt begins with the draw of index 0. Its draws are the recorded responses in an
    order of its own, the same for all engines of one seed; more are drawn with replacement.

    Args:
        prompts: Prompt -> its responses.
        slots: See `SimulatedEngine`.
        seed: Orders the responses.
    """

    def __init__(self, prompts: Mapping[Key, Recorded], slots: int, seed: int = 0) -> None:
        super().__init__({}, Lengths(1, 0.0, 1), slots)  # `respond` looks at neither
        self.prompts, self.seed = dict(prompts), seed
        self._visits = Counter[Key]()
        self._orders: dict[Key, Sequence[int]] = {}

    def respond(self, draw: Draw) -> SimulatedResponse:
        recorded = self.prompts[draw.key]
        if draw.index == 0 or draw.key not in self._orders:
            self._visits[draw.key] += 1
            rng = np.random.default_rng(draw_seed(self.seed, self._visits[draw.key], draw.key, 0))
            self._orders[draw.key] = rng.permutation(len(recorded)).tolist()
        order, index = self._orders[draw.key], draw.index
        index = order[index] if index < len(order) else int(uniforms(draw.seed)[0] * len(order))
        length = int(recorded.tokens[index]) if len(recorded.tokens) else 1
        return SimulatedResponse(repr(float(recorded.rewards[index])), length, truncated=False)

    def reward(self, text: str) -> float:
        return float(text)
