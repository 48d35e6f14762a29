"""Beliefs that count correct responses: of each prompt, or of its latest visit."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import EXPECTATION_WEIGHT, Belief, Floats
from rollwise.beliefs.state import Indices
from rollwise.sampling.checks import Positive, Share

Counts = NDArray[np.int64]


@dataclass(eq=False, kw_only=True)
class DecayedBeta(Belief):
    """A Beta distribution of decayed counts (arXiv 2510.04996; with a prior, arXiv 2507.04632).

    A visit with n responses, k of them correct, makes the counts N ← λN + n and N₊ ← λN₊ + k; the
    pass rate is then Beta(N₊ + α₀, N − N₊ + β₀). A prompt decays only when it is visited. Counts
    from pools that stopped because of their contents lean towards ½, and so does the belief.
    """

    kept: ClassVar[tuple[str, ...]] = ("_correct", "_incorrect")

    decay: Share = 0.5
    """Share of a prompt's earlier counts that is kept at each visit (λ); 1 never forgets."""
    prior_correct: Positive = 1.0
    """α₀ of the prior Beta(α₀, β₀)."""
    prior_incorrect: Positive = 1.0
    """β₀ of the prior Beta(α₀, β₀)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Filled, not reserved by np.zeros, which would make the first visits wait for memory.
        self._correct, self._incorrect = np.full((2, self.total), 0, dtype=np.float32)

    def believe(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        priors = self.priors(indices)
        strength = priors.sum(axis=1)
        return priors[:, 0] / strength, strength

    def priors(self, indices: Indices | slice) -> NDArray[np.float64]:
        counts = np.stack([self._correct[indices], self._incorrect[indices]], axis=1)
        priors: NDArray[np.float64] = counts + np.array([self.prior_correct, self.prior_incorrect])
        return priors

    def learn(self, indices: Indices, correct: Counts, drawn: Counts) -> None:
        self._correct[indices] = self.decay * self._correct[indices] + correct
        self._incorrect[indices] = self.decay * self._incorrect[indices] + (drawn - correct)

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": float(np.count_nonzero(self._correct + self._incorrect)) / self.total}


@dataclass(eq=False)
class LatestPassRate(Belief):
    """Expects what was seen last (Kimi k1.5, arXiv 2501.12599); nothing before the first visit.

    The latest pass rate of few responses is noisy: with 4, a prompt with a true pass rate of 0.7
    looks solved every fourth time.
    """

    kept: ClassVar[tuple[str, ...]] = ("_pass_rates",)

    def __post_init__(self) -> None:
        self._pass_rates = np.full(self.total, np.nan, np.float32)

    def believe(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        latest = self._pass_rates[indices]
        return latest, np.where(np.isnan(latest), 0.0, EXPECTATION_WEIGHT)

    def learn(self, indices: Indices, correct: Counts, drawn: Counts) -> None:
        self._pass_rates[indices] = correct / drawn

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": float(np.count_nonzero(~np.isnan(self._pass_rates))) / self.total}
