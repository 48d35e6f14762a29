"""An objective of one's own: W-REINFORCE (arXiv 2506.01347), which learns mostly from mistakes."""

from dataclasses import dataclass, field

import numpy as np

import rollwise as rw


@dataclass(frozen=True)
class NegativesFirst(rw.Objective):
    """A_i = `positive_weight` for a correct response and −1 for an incorrect one."""

    positive_weight: float = field(default=0.1, metadata={"help": "Of correct responses."})

    def __post_init__(self) -> None:
        if self.positive_weight < 0:
            raise ValueError(f"positive_weight must be at least 0, got {self.positive_weight}")

    def advantages(self, pool, group):
        """Weigh each member of the group, shape (k,)."""
        return np.where(pool.correct[group.indices], self.positive_weight, -1.0)

    @property
    def needs_variance(self) -> bool:
        """False: responses that are all incorrect teach something."""
        return False
