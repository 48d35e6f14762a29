"""What samplers believe that count responses: how many were correct, older ones counting less."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.base import BatchSampler, array_from_state
from rollwise.prompts.choice import Places
from rollwise.prompts.sampler import State
from rollwise.sampling.pool import Key


class DecayedCounts:
    """Correct and incorrect responses of each prompt; a visit makes the earlier ones count less.

    A visit with n responses, k of them correct: N ← λN + n and N₊ ← λN₊ + k (Reinforce-Ada-Est,
    arXiv 2510.04996). A prompt decays only when it is visited. 8 bytes a prompt.

    Args:
        total: The number of prompts.
        decay: λ, from 0 (only the latest visit counts) to 1 (nothing is forgotten).

    Attributes:
        visited: How many prompts have counts.

    Raises:
        ValueError: A `decay` out of its range.
    """

    def __init__(self, total: int, decay: float) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must lie between 0 and 1, got {decay}")
        self.decay = decay
        self.visited = 0
        # Filled, not reserved by np.zeros: else the first visits wait for the memory to be given.
        self._counts = np.full((total, 2), 0, dtype=np.float32)

    def at(self, places: Places) -> NDArray[np.float64]:
        """Return N₊ and N − N₊ of some prompts, shape (P, 2)."""
        return self._counts[places].astype(float)

    def add(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Visit some prompts, each once, shape (P,) each, all with draws."""
        before = self._counts[places]
        self._counts[places] = self.decay * before + np.stack([correct, drawn - correct], axis=1)
        self.visited += int(np.count_nonzero(~before.any(axis=1)))

    def state(self) -> State:
        """Return both counts, shape (P,) each; copies."""
        return {"correct": self._counts[:, 0].copy(), "incorrect": self._counts[:, 1].copy()}

    @classmethod
    def from_state(cls, state: State, total: int, decay: float) -> Self:
        """Make counts again from their `state`.

        Raises:
            ValueError: One is lacking, or is of another number of prompts.
        """
        counts = cls(total, decay)
        for column, name in enumerate(("correct", "incorrect")):
            counts._counts[:, column] = array_from_state(state, name, total, np.float32)
        counts.visited = int(np.count_nonzero(counts._counts.any(axis=1)))
        return counts


@dataclass(eq=False)
class CountingSampler(BatchSampler):
    """A sampler that believes of each pass rate what its decayed counts and a Beta prior say.

    Counts of pools that stopped because of what they held lean towards ½, and so do the beliefs.
    """

    decay: float = field(
        default=0.5,
        kw_only=True,
        metadata={
            "help": "What a visit keeps of a prompt's earlier counts (λ), from which its pass rate "
            "is expected; 1 never forgets."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts = DecayedCounts(len(self.keys), self.decay)

    @property
    def prior(self) -> tuple[float, float]:
        """α₀ and β₀, believed of every pass rate before the first visit: nothing, Beta(1, 1)."""
        return 1.0, 1.0

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return the mean of what is believed, (N₊ + α₀)/(N + α₀ + β₀), shape (P,)."""
        believed = self.pass_rate_priors(keys)
        mean: NDArray[np.float64] = believed[:, 0] / believed.sum(axis=1)
        return mean

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return what is believed of each pass rate: N₊ + α₀ and N − N₊ + β₀, shape (P, 2)."""
        return self._believed(self.index.places(keys))

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": self._counts.visited / len(self.keys)}

    def _believed(self, places: Places) -> NDArray[np.float64]:
        return self._counts.at(places) + self.prior

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        self._counts.add(places, correct, drawn)

    def _own_state(self) -> State:
        return self._counts.state()

    def _load_own_state(self, state: State) -> None:
        self._counts = self._counts_from(state)

    def _counts_from(self, state: State) -> DecayedCounts:
        return DecayedCounts.from_state(state, len(self.keys), self.decay)
