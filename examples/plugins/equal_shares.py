"""A prompt sampler of one's own that looks at the data: as many prompts of each kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollwise.prompts import FixedSetSampler


@dataclass(eq=False)
class EqualShares(FixedSetSampler):
    """Takes in turn from the values of a column, such as `data_source`; at random within each."""

    columns: Mapping[str, Sequence[Any]] = field(kw_only=True, repr=False)
    by: str = field(default="level", kw_only=True, metadata={"help": "The column."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in self.columns:
            raise ValueError(f"by must be one of {', '.join(self.columns)}, got {self.by!r}")
        self.kinds = np.unique([str(v) for v in self.columns[self.by]], return_inverse=True)[1]

    def choose(self, count, exclude):
        """Return the indices of the prompts that come first in their kinds."""
        left = self.rng().permutation(np.flatnonzero(~exclude))
        turns = np.zeros(len(left), int)
        for kind in range(self.kinds.max() + 1):
            own = self.kinds[left] == kind
            turns[own] = np.arange(own.sum())
        return left[np.argsort(turns, kind="stable")][:count]
