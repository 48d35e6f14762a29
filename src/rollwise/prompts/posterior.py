"""Prompts whose pass rate, drawn from what is believed of it, is nearest to a target."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.base import BatchSampler, array_from_state
from rollwise.prompts.choice import Mask, Places
from rollwise.prompts.sampler import State
from rollwise.sampling.checks import at_least
from rollwise.sampling.pool import Key


@dataclass(eq=False)
class Posterior(BatchSampler):
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
    decay: float = field(
        default=0.5,
        kw_only=True,
        metadata={"help": "What is kept of earlier counts at a visit (λ); 1 never forgets."},
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
        for name in ("target", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("prior_correct", "prior_incorrect"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        at_least("candidates", self.candidates, self.batch_size)
        self._correct = np.zeros(len(self.keys), dtype=np.float32)
        self._incorrect = np.zeros(len(self.keys), dtype=np.float32)

    def _choose(self, count: int, exclude: Mask | None) -> Places:
        rng = self._rng()
        places = self._compete(rng, count, exclude)
        theta = rng.beta(
            self.prior_correct + self._correct[places],
            self.prior_incorrect + self._incorrect[places],
        )
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

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        self._correct[places] = self.decay * self._correct[places] + correct
        self._incorrect[places] = self.decay * self._incorrect[places] + (drawn - correct)

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return the posterior mean α/(α + β) of each prompt, shape (P,)."""
        places = self.index.places(keys)
        alpha = self.prior_correct + self._correct[places].astype(float)
        beta = self.prior_incorrect + self._incorrect[places].astype(float)
        mean: NDArray[np.float64] = alpha / (alpha + beta)
        return mean

    def _own_state(self) -> State:
        return {"correct": self._correct.copy(), "incorrect": self._incorrect.copy()}

    def _load_own_state(self, state: State) -> None:
        correct = array_from_state(state, "correct", len(self.keys), np.float32)
        incorrect = array_from_state(state, "incorrect", len(self.keys), np.float32)
        self._correct, self._incorrect = correct, incorrect
