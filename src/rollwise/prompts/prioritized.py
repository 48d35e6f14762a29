"""Prompts that fail often are drawn more often."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rollwise.beliefs import Belief, LatestPassRate
from rollwise.beliefs.state import Indices
from rollwise.prompts.choice import smallest
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.keys import Mask


@dataclass(eq=False, kw_only=True)
class Prioritized(FixedSetSampler):
    """Draws prompts with a probability proportional to 1 − s, s the expected pass rate.

    Kimi k1.5 (arXiv 2501.12599, prioritized sampling). A batch is drawn without replacement: each
    prompt gets an exponential time of rate 1 − s, and those with the shortest times are taken. A
    prompt with s = 1 comes only after all others, then uniformly. As published, s is the noisy
    latest pass rate (`LatestPassRate`), 0 before the first visit; you can pass any other belief.
    """

    belief_kind: ClassVar[type[Belief]] = LatestPassRate

    def choose(self, count: int, exclude: Mask | None) -> Indices:
        times = self.rng().standard_exponential(len(self.keys))
        expected = self.belief.mean(slice(None))
        rates = 1.0 - np.where(np.isnan(expected), 0.0, expected)
        # At the least rate solved prompts come after all others, in the order of their own times.
        return smallest(times / np.maximum(rates, np.finfo(np.float32).tiny), count, exclude)
