"""One pass rate for all prompts."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief, beta_of
from rollwise.beliefs.state import Places, State, from_state

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Constant(Belief):
    """Expects of every prompt the share of correct responses so far; older steps count less.

    Use it as a yardstick for other beliefs: it knows the policy's level and nothing about single
    prompts. It needs no memory per prompt. Before anything is seen it expects ½.

    Raises:
        ValueError: A setting out of its range.
    """

    decay: float = field(
        default=0.8,
        kw_only=True,
        metadata={"help": "The factor on earlier counts at each step; 1 never forgets."},
    )
    strength: float = field(
        default=2.0,
        kw_only=True,
        metadata={"help": "How many responses the share counts as, for one prompt."},
    )

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must lie between 0 and 1, got {self.decay}")
        if not 0 < self.strength < np.inf:
            raise ValueError(f"strength must be finite and above 0, got {self.strength}")
        self._correct, self._drawn = 1.0, 2.0

    def believe(self, places: Places | slice) -> tuple[Floats, Floats]:
        """Return the expected pass rates and their strength in pseudo-counts, shape (P,) each."""
        count = (
            len(range(*places.indices(self.total))) if isinstance(places, slice) else len(places)
        )
        share = self._correct / self._drawn
        return np.full(count, share), np.full(count, self.strength)

    def priors(self, places: Places | slice) -> Floats:
        """Return α and β of the Beta distribution of this mean and strength, shape (P, 2)."""
        return beta_of(*self.believe(places))

    def learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Take in a step: k correct of n responses to some prompts, each once, shape (P,) each."""
        drawn_of_step = float(np.sum(drawn))
        if not drawn_of_step:
            return
        self._correct = self.decay * self._correct + float(np.sum(correct))
        self._drawn = self.decay * self._drawn + drawn_of_step

    def state_dict(self) -> State:
        """Return the two counts, and of how many prompts."""
        return {"total": self.total, "correct": self._correct, "drawn": self._drawn}

    def load_state_dict(self, state: State) -> None:
        """Resume from a state.

        Raises:
            ValueError: A count is lacking, or it is of another number of prompts.
        """
        if (total := from_state(state, "total")) != self.total:
            raise ValueError(
                f"the state is of a belief over {total} prompts, this one has {self.total}"
            )
        correct, drawn = from_state(state, "correct"), from_state(state, "drawn")
        self._correct, self._drawn = float(correct), float(drawn)

    def metrics(self) -> dict[str, float]:
        """Return the share."""
        return {"belief_share": self._correct / self._drawn}
