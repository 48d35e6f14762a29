"""Every prompt equally often."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.epochs import Epochs
from rollwise.prompts.fixed_set import CountingSampler
from rollwise.prompts.keys import Mask


@dataclass(eq=False)
class Uniform(CountingSampler):
    """Shuffled epochs: each prompt once before any comes again (the papers' "random").

    A batch has no prompt twice, even across an epoch's end; an excluded prompt loses its turn.
    Results change the expected pass rates, never which prompts come.
    """

    kept = ("_walk",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._walk = Epochs(len(self.keys), self.seed)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._walk.epoch

    def choose(self, count: int, exclude: Mask | None) -> NDArray[np.int32]:
        return self._walk.take(count, exclude)

    def metrics(self) -> dict[str, float]:
        """Return the epochs that are done, parts of one included, and the share of prompts seen."""
        return {"epoch": self._walk.progress, **super().metrics()}
