"""A belief of one's own: the mean of a prompt's last visits, each of which counts the same."""

from dataclasses import dataclass, field

import numpy as np

from rollwise.beliefs import Belief


@dataclass(eq=False)
class LastVisits(Belief):
    """Expects (n₊ + 1)/(n + 2), where n₊ of n responses of the last `visits` were correct."""

    kept = ("counts",)  # what a resumed run needs

    visits: int = field(default=3, kw_only=True, metadata={"help": "Visits that count."})

    def __post_init__(self) -> None:
        if self.visits < 1:
            raise ValueError(f"visits must be at least 1, got {self.visits}")
        self.counts = np.zeros((self.total, self.visits, 2), np.int32)  # correct, drawn

    def believe(self, indices):
        """Return the expected pass rates and how many responses they rest on, shape (P,) each."""
        correct, drawn = self.counts[indices].sum(axis=1).T
        return (correct + 1) / (drawn + 2), drawn.astype(float)

    def learn(self, indices, correct, drawn):
        """Let the oldest visit go, and add the new one."""
        self.counts[indices, :-1] = self.counts[indices, 1:]
        self.counts[indices, -1] = np.stack([correct, drawn], axis=1)
