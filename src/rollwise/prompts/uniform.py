"""Every prompt as often as any other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.base import array_from_state, from_state
from rollwise.prompts.choice import Mask
from rollwise.prompts.counts import CountingSampler
from rollwise.prompts.epochs import Epochs
from rollwise.prompts.sampler import State


@dataclass(eq=False)
class Uniform(CountingSampler):
    """Shuffled epochs: each prompt once before any comes again (the papers' "random").

    A batch that crosses an epoch's end has no prompt twice either; an excluded prompt loses its
    turn. What is told changes what is expected of pass rates, never which prompts come.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._walk = Epochs(len(self.keys), self.seed)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._walk.epoch

    def _choose(self, count: int, exclude: Mask | None) -> NDArray[np.int32]:
        return self._walk.take(count, None if exclude is None else exclude.__getitem__)

    def _own_state(self) -> State:
        return walk_state(self._walk) | super()._own_state()

    def _load_own_state(self, state: State) -> None:
        counts = self._counts_from(state)
        load_walk(self._walk, state)
        self._counts = counts

    def metrics(self) -> dict[str, float]:
        """Return the epochs that are done, parts of one included, and the share of prompts seen."""
        return {"epoch": self._walk.progress, **super().metrics()}


def walk_state(walk: Epochs) -> State:
    """Return a walk's epoch, its order, and how far it has been walked."""
    return {"epoch": walk.epoch, "order": walk.order.copy(), "position": walk.position}


def load_walk(walk: Epochs, state: State) -> None:
    """Go on with a walk from `walk_state`.

    Raises:
        ValueError: Something is lacking, or of another number of prompts.
    """
    epoch, position = int(from_state(state, "epoch")), int(from_state(state, "position"))
    walk.order = array_from_state(state, "order", walk.total, np.int32)
    walk.epoch, walk.position = epoch, position
