"""Prompts chosen by what a belief expects of them."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from rollwise.beliefs import Belief, LatestPassRate, LogitKalman
from rollwise.beliefs.belief import priors_from
from rollwise.beliefs.state import Indices
from rollwise.prompts.fixed_set import CountingSampler, FixedSetSampler, Mask, smallest
from rollwise.sampling.checks import Share
from rollwise.sampling.objectives import OBJECTIVES, PassRateObjective

FUNCTIONS = {
    name: kind() for name, kind in OBJECTIVES.items() if issubclass(kind, PassRateObjective)
}
"""The functions f of the pass rate that a worth can be computed for."""


@dataclass(eq=False, kw_only=True)
class Prioritized(FixedSetSampler):
    """Draws prompts with a probability proportional to 1 − s, s the expected pass rate.

    Kimi k1.5 (arXiv 2501.12599, prioritized sampling). A batch is drawn without replacement: each
    prompt gets an exponential time of rate 1 − s, and those with the shortest times are taken; a
    prompt with s = 1 comes after all others. As published, s is the noisy latest pass rate, 0
    before the first visit; any other belief can be passed.
    """

    belief_kind: ClassVar[type[Belief]] = LatestPassRate

    def choose(self, count: int, exclude: Mask) -> Indices:
        times = self.rng().standard_exponential(len(self.keys))
        expected = self.belief.mean(slice(None))
        rates = 1.0 - np.where(np.isnan(expected), 0.0, expected)
        # At the least rate solved prompts come after all others, in the order of their own times.
        return smallest(times / np.maximum(rates, np.finfo(np.float32).tiny), count, exclude)


@dataclass(eq=False, kw_only=True)
class Posterior(CountingSampler):
    """Thompson sampling on a posterior of each pass rate (MoPPS, arXiv 2507.04632).

    At each step a pass rate θ is drawn for every prompt from the Beta distribution of its belief,
    and the prompts with the smallest (θ − target)² are taken, so that little-known prompts come
    now and then. With `exploration` (ours) a share of the batch is random, so that training never
    narrows to the same prompts.
    """

    target: Share = 0.5
    """Target pass rate."""
    exploration: Share = 0.0
    """Share of prompts that is chosen at random."""

    def choose(self, count: int, exclude: Mask) -> Indices:
        indices, rng = np.flatnonzero(~exclude), self.rng()
        theta = rng.beta(*priors_from(self.belief, "priors", len(indices), indices).T)
        nearest = indices[np.argsort((theta - self.target) ** 2, kind="stable")]
        if not self.exploration:
            return nearest[:count]
        aimed = count - round(self.exploration * count)
        others = rng.permutation(nearest[aimed:])[: count - aimed]
        return rng.permutation(np.concatenate([nearest[:aimed], others]))


@dataclass(eq=False, kw_only=True)
class Worth(FixedSetSampler):
    """Draws prompts with probability proportional to the worth of a response, f′(p)²·p(1 − p).

    With a good baseline, that is the expected square of a response's advantage for Σ f(p), whatever
    group it is in. `linear` prefers pass rates near ½ and `log` hard prompts; `arcsine` values all
    prompts alike. p is the mean of the belief. A batch is drawn without replacement. Prompts that
    are chosen more often also count more: they are not weighted down to compensate.
    """

    belief_kind: ClassVar[type[Belief]] = LogitKalman

    objective: Literal["linear", "log", "sqrt", "arcsine"] = "linear"
    """Maximized function of pass rates: `linear`, `log`, `sqrt`, `arcsine`."""
    power: Annotated[float, Ge(0), Le(100)] = 1.0
    """Power to which the worth is raised (0: uniform choice)."""
    exploration: Annotated[float, Gt(0), Le(1)] = 0.1
    """Share of the probability spread evenly over prompts."""

    def worth(self, indices: Indices | slice) -> NDArray[np.float64]:
        """Return (f′(p)²·p(1 − p))^power, shape (P,); p = ½ where nothing is expected."""
        mean = np.asarray(self.belief.mean(indices), dtype=float)
        p = np.clip(np.where(np.isnan(mean), 0.5, mean), 1e-3, 1.0 - 1e-3)
        found = (FUNCTIONS[self.objective].slope(p) ** 2 * p * (1.0 - p)) ** self.power
        return np.asarray(found)

    def choose(self, count: int, exclude: Mask) -> Indices:
        indices = np.flatnonzero(~exclude)
        if not len(indices):
            return indices
        worth = self.worth(indices)
        rate = (1.0 - self.exploration) * worth / worth.mean() + self.exploration
        times = self.rng().standard_exponential(len(indices)) / rate
        return indices[np.argsort(times, kind="stable")[:count]]
