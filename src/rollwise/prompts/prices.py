"""What a response to each prompt is expected to cost, in tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Places, State, array_from_state, from_state

Floats = NDArray[np.float64]

MEMORY = 0.8
"""What a visit keeps of a prompt's earlier lengths, and a step of the set's."""

SHRINKAGE = 1.0
"""For how many responses of a prompt the mean of the whole set counts."""


@dataclass(eq=False)
class TokenPrices:
    """Expects of each prompt's responses the length that its earlier ones had.

    The expected length is μ·ρ. The mean length μ of the whole set moves as the policy learns. The
    ratio ρ = (R + c)/(N + c) is a prompt's own, where R and N are the decayed sums of its
    responses' lengths in units of μ and of their number, and c = 1. A prompt not seen yet has
    ρ = 1. In μ each response counts by its ratio, so that choosing prompts with short responses
    does not lower it. It takes 8 bytes a prompt.

    Args:
        total: The number of prompts.
    """

    total: int

    def __post_init__(self) -> None:
        # Filled, not reserved by np.zeros, which would make the first visits wait for memory.
        self._lengths = np.full(self.total, 0, dtype=np.float32)
        self._counts = np.full(self.total, 0, dtype=np.float32)
        self._tokens, self._responses = 0.0, 0.0

    @property
    def mean(self) -> float:
        """μ, in tokens; 1 before anything is known."""
        return self._tokens / self._responses if self._tokens else 1.0

    def of(self, places: Places | slice) -> Floats:
        """Return the expected tokens of one response, shape (P,)."""
        return self.mean * self._ratio(places)

    def learn(
        self, places: Places, tokens: NDArray[np.int64], responses: NDArray[np.int64]
    ) -> None:
        """Take in the tokens of some responses to some prompts.

        Args:
            places: Which prompts, each once, shape (P,).
            tokens: Of all responses to each together, shape (P,).
            responses: How many, at least 1, shape (P,).
        """
        self._tokens = MEMORY * self._tokens + float(tokens.sum())
        self._responses = MEMORY * self._responses + float((responses * self._ratio(places)).sum())
        self._lengths[places] = MEMORY * self._lengths[places] + tokens / self.mean
        self._counts[places] = MEMORY * self._counts[places] + responses

    def _ratio(self, places: Places | slice) -> Floats:
        lengths, counts = self._lengths[places].astype(float), self._counts[places].astype(float)
        ratio: Floats = (lengths + SHRINKAGE) / (counts + SHRINKAGE)
        return ratio

    def state_dict(self) -> State:
        """Return all that is known, as copies."""
        return {
            "price_lengths": self._lengths.copy(),
            "price_counts": self._counts.copy(),
            "price_tokens": self._tokens,
            "price_responses": self._responses,
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from a state over the same number of prompts.

        Raises:
            ValueError: Something is lacking, or is of another number of prompts.
        """
        lengths = array_from_state(state, "price_lengths", self.total, np.float32)
        counts = array_from_state(state, "price_counts", self.total, np.float32)
        tokens = float(from_state(state, "price_tokens"))
        responses = float(from_state(state, "price_responses"))
        self._lengths, self._counts = lengths, counts
        self._tokens, self._responses = tokens, responses
