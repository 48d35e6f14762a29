"""Counts of correct and incorrect responses, older ones counting less, and a Beta prior."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief
from rollwise.beliefs.state import Places, State, array_from_state

DECAY_HELP = (
    "What a visit keeps of a prompt's earlier counts (λ), from which its pass rate is expected; "
    "1 never forgets."
)


@dataclass(eq=False)
class DecayedBeta(Belief):
    """A Beta distribution of decayed counts (arXiv 2510.04996; with a prior, arXiv 2507.04632).

    A visit with n responses, k of them correct, makes the counts N ← λN + n and N₊ ← λN₊ + k; the
    pass rate is then Beta(N₊ + α₀, N − N₊ + β₀). A prompt decays only when it is visited. Counts
    from pools that stopped because of their contents lean towards ½, and so does the belief. It
    takes 8 bytes a prompt.

    Raises:
        ValueError: A setting out of its range.
    """

    decay: float = field(default=0.5, kw_only=True, metadata={"help": DECAY_HELP})
    prior_correct: float = field(
        default=1.0, kw_only=True, metadata={"help": "α₀ of the prior Beta(α₀, β₀)."}
    )
    prior_incorrect: float = field(
        default=1.0, kw_only=True, metadata={"help": "β₀ of the prior Beta(α₀, β₀)."}
    )

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must lie between 0 and 1, got {self.decay}")
        for name in ("prior_correct", "prior_incorrect"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        # Filled, not reserved by np.zeros, which would make the first visits wait for memory.
        self._counts = np.full((self.total, 2), 0, dtype=np.float32)
        self._visited = 0

    def believe(self, places: Places | slice) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the mean α/(α + β) and the strength α + β, shape (P,) each."""
        priors = self.priors(places)
        strength = priors.sum(axis=1)
        return priors[:, 0] / strength, strength

    def priors(self, places: Places | slice) -> NDArray[np.float64]:
        """Return N₊ + α₀ and N − N₊ + β₀, shape (P, 2)."""
        prior = (self.prior_correct, self.prior_incorrect)
        priors: NDArray[np.float64] = self._counts[places].astype(float) + prior
        return priors

    def learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Let the earlier counts of some prompts decay, and add the new ones."""
        before = self._counts[places]
        self._counts[places] = self.decay * before + np.stack([correct, drawn - correct], axis=1)
        self._visited += int(np.count_nonzero(~before.any(axis=1)))

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": self._visited / self.total}

    def state_dict(self) -> State:
        """Return both counts, shape (total,) each; copies."""
        return {"correct": self._counts[:, 0].copy(), "incorrect": self._counts[:, 1].copy()}

    def load_state_dict(self, state: State) -> None:
        """Resume from a state.

        Raises:
            ValueError: One of the counts is lacking, or is of another number of prompts.
        """
        columns = [
            array_from_state(state, name, self.total, np.float32)
            for name in ("correct", "incorrect")
        ]
        self._counts = np.stack(columns, axis=1)
        self._visited = int(np.count_nonzero(self._counts.any(axis=1)))
