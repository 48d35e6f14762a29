"""The pass rate of the latest visit alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import EXPECTATION_WEIGHT, Belief
from rollwise.beliefs.state import Places, State, array_from_state


@dataclass(eq=False)
class LatestPassRate(Belief):
    """Expects what was seen last (Kimi k1.5, arXiv 2501.12599); nothing before the first visit.

    4 bytes a prompt. The latest pass rate of few responses is noisy: with 4, a prompt of true pass
    rate 0.7 seems solved every fourth time.
    """

    def __post_init__(self) -> None:
        self._pass_rates = np.full(self.total, np.nan, np.float32)
        self._visited = 0

    def believe(self, places: Places | slice) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the latest pass rates, which count as `EXPECTATION_WEIGHT` responses."""
        latest = self._pass_rates[places]
        return latest, np.where(np.isnan(latest), 0.0, EXPECTATION_WEIGHT)

    def mean(self, places: Places | slice) -> NDArray[np.floating]:
        """Return the latest pass rates, shape (P,); NaN before the first visit."""
        return self._pass_rates[places]

    def learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Replace the latest pass rates."""
        self._visited += int(np.count_nonzero(np.isnan(self._pass_rates[places])))
        self._pass_rates[places] = correct / drawn

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": self._visited / self.total}

    def state_dict(self) -> State:
        """Return the pass rates; a copy."""
        return {"pass_rates": self._pass_rates.copy()}

    def load_state_dict(self, state: State) -> None:
        """Resume from a state.

        Raises:
            ValueError: It lacks the pass rates, or is of another number of prompts.
        """
        self._pass_rates = array_from_state(state, "pass_rates", self.total, np.float32)
        self._visited = int(np.count_nonzero(~np.isnan(self._pass_rates)))
