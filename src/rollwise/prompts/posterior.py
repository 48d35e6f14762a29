"""Prompts whose pass rate, drawn from what is believed of it, is nearest to a target."""

from dataclasses import dataclass, field

import numpy as np

from rollwise.prompts.choice import Mask, Places
from rollwise.prompts.counts import CountingSampler
from rollwise.sampling.checks import at_least


@dataclass(eq=False)
class Posterior(CountingSampler):
    """Thompson sampling on a decayed Beta posterior of each pass rate (MoPPS, arXiv 2507.04632).

    A visit with n₊ correct and n₋ incorrect responses moves Beta(α, β) to
    α ← λ·α + (1 − λ)·α₀ + n₊, and β likewise. At each step a pass rate θ is drawn from every
    prompt's posterior, and the prompts of the smallest (θ − target)² are taken: what is known
    little of has a wide posterior and comes now and then.

    A prompt decays only when it is visited. Counts of pools that stopped because of what they held
    lean towards ½, and so does the posterior.
    """

    target: float = field(
        default=0.5, kw_only=True, metadata={"help": "The pass rate that is aimed at."}
    )
    prior_correct: float = field(
        default=1.0, kw_only=True, metadata={"help": "α₀ of the prior Beta(α₀, β₀)."}
    )
    prior_incorrect: float = field(
        default=1.0, kw_only=True, metadata={"help": "β₀ of the prior Beta(α₀, β₀)."}
    )
    candidates: int = field(
        default=1 << 17,
        kw_only=True,
        metadata={"help": "At most so many prompts, drawn uniformly, compete at a step."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.target <= 1:
            raise ValueError(f"target must lie between 0 and 1, got {self.target}")
        for name in ("prior_correct", "prior_incorrect"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        at_least("candidates", self.candidates, self.batch_size)

    @property
    def prior(self) -> tuple[float, float]:
        """α₀ and β₀, as they are set."""
        return self.prior_correct, self.prior_incorrect

    def _choose(self, count: int, exclude: Mask | None) -> Places:
        rng = self._rng()
        places = self._compete(rng, count, exclude)
        theta = rng.beta(*self._believed(places).T)
        return places[np.argsort((theta - self.target) ** 2, kind="stable")[:count]]

    def _compete(self, rng: np.random.Generator, count: int, exclude: Mask | None) -> Places:
        """Draw the candidates among those not excluded: all, where they are few enough."""
        total, wanted = len(self.keys), max(count, self.candidates)
        if total > wanted:
            drawn = rng.choice(total, wanted, replace=False, shuffle=False)
            if exclude is None or np.count_nonzero(~exclude[drawn]) >= count:
                return drawn if exclude is None else drawn[~exclude[drawn]]
        allowed = np.arange(total) if exclude is None else np.flatnonzero(~exclude)
        if len(allowed) > wanted:
            allowed = rng.choice(allowed, wanted, replace=False, shuffle=False)
        return allowed
