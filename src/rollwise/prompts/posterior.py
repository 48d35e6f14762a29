"""Prompts whose pass rate, drawn from the belief about it, is nearest to a target."""

from dataclasses import dataclass

import numpy as np

from rollwise.beliefs.belief import priors_from
from rollwise.beliefs.state import Indices
from rollwise.prompts.fixed_set import CountingSampler
from rollwise.prompts.keys import Mask, allowed
from rollwise.sampling.checks import setting, share


@dataclass(eq=False, kw_only=True)
class Posterior(CountingSampler):
    """Thompson sampling on a posterior of each pass rate (MoPPS, arXiv 2507.04632).

    At each step a pass rate θ is drawn for every prompt from the Beta distribution of its belief,
    and the prompts with the smallest (θ − target)² are taken, so that little-known prompts come
    now and then. The belief is `DecayedBeta`, as published, or any other. With `exploration`
    (ours) a share of the batch is random, so that training never narrows to the same prompts.
    """

    target: float = setting(0.5, "Aim at this pass rate.")
    exploration: float = setting(0.0, "Choose this share of the prompts at random.")

    def __post_init__(self) -> None:
        super().__post_init__()
        share("target", self.target)
        share("exploration", self.exploration)

    def choose(self, count: int, exclude: Mask | None) -> Indices:
        indices, rng = allowed(len(self.keys), exclude), self.rng()
        theta = rng.beta(*priors_from(self.belief, "priors", len(indices), indices).T)
        nearest = indices[np.argsort((theta - self.target) ** 2, kind="stable")]
        if not self.exploration:
            return nearest[:count]
        aimed = count - round(self.exploration * count)
        others = rng.permutation(nearest[aimed:])[: count - aimed]
        return rng.permutation(np.concatenate([nearest[:aimed], others]))
