"""Prompts that fail often are drawn more often."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

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
        rng = self.rng()
        times: NDArray[np.float64] = rng.standard_exponential(len(self.keys))
        expected = self.belief.mean(slice(None))
        with np.errstate(divide="ignore", invalid="ignore"):
            times /= 1.0 - np.where(np.isnan(expected), 0.0, expected)
        chosen = smallest(times, count, exclude)
        if len(chosen) == count:
            return chosen
        left = np.ones(len(self.keys), dtype=bool) if exclude is None else ~exclude
        left[chosen] = False
        solved = np.flatnonzero(left)
        more = rng.choice(solved, min(count - len(chosen), len(solved)), replace=False)
        return np.concatenate([chosen, more])
