"""How far the prompts of each labelled level lie from the whole set, in logits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Places, State, from_state, load_into, state_of

Floats = NDArray[np.float64]

MEMORY = 0.99
"""What a step keeps of the information that earlier steps gave of a level's offset."""

LONGEST_STEP = 1.0
"""Of an offset, in logits."""

_KEPT = ("level_names", "level_offsets", "level_information")


@dataclass(eq=False)
class LevelOffsets:
    """An offset u ~ N(0, τ²) for each labelled level, in logits, learned from its prompts' results.

    Each step is a Newton step: u moves by the surprises of the level's prompts, Σ(k − n·p̂)·∂z, over
    the information 1/τ² + Σ n·p̂(1 − p̂)·∂z² of this and earlier steps, which are forgotten slowly
    because the policy learns. So a level of which little was seen stays near the whole set. Prompts
    without a level make one of their own.

    Args:
        levels: The level of each prompt, shape (P,); None where it has none.
        variance: τ².
    """

    levels: Sequence[int | None] = field(repr=False)
    variance: float

    def __post_init__(self) -> None:
        named = np.array([np.nan if each is None else each for each in self.levels], dtype=float)
        self.level_names, member = np.unique(named, return_inverse=True)
        self._member = member.astype(np.int32)
        self.level_offsets = np.zeros(len(self.level_names))
        self.level_information = np.full(len(self.level_names), 1.0 / self.variance)

    def of(self, places: Places | slice) -> Floats:
        """Return the offset of the level of each prompt, shape (P,)."""
        offsets: Floats = self.level_offsets[self._member[places]]
        return offsets

    def learn(self, places: Places, surprise: Floats, information: Floats) -> None:
        """Move the offsets.

        Args:
            places: Which prompts, shape (P,).
            surprise: The derivative of the log-likelihood by the logit, shape (P,).
            information: Its Fisher information, shape (P,).
        """
        member, count = self._member[places], len(self.level_names)
        prior = 1.0 / self.variance
        kept = MEMORY * self.level_information + (1.0 - MEMORY) * prior
        self.level_information = kept + np.bincount(member, information, count)
        step = np.bincount(member, surprise, count) / self.level_information
        self.level_offsets += np.clip(step, -LONGEST_STEP, LONGEST_STEP)

    def state(self) -> State:
        """Return the levels, their offsets, and how much these rest on; copies."""
        return state_of(self, _KEPT)

    def load(self, state: State) -> None:
        """Resume from a state.

        Raises:
            ValueError: It is of other levels, or lacks something.
        """
        names = np.array(from_state(state, "level_names"), dtype=np.float64)
        if not np.array_equal(names, self.level_names, equal_nan=True):
            raise ValueError(
                f"the state is of prompts of levels {names.tolist()}, these have "
                f"{self.level_names.tolist()}"
            )
        load_into(self, _KEPT, state)
