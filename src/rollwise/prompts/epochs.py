"""Shuffled epochs: every member of a set once before any repeats."""

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Kept
from rollwise.prompts.keys import Mask


class Epochs(Kept):
    """Walks through 0 to `total` − 1 in an order that seed and epoch shuffle.

    Attributes:
        epoch: The number of this epoch, from 0.
        order: The order of this epoch, shape (total,).
        position: The number of its members that have been taken.
    """

    kept = ("epoch", "order", "position")

    def __init__(self, total: int, seed: int) -> None:
        self.total, self.seed = total, seed
        self.begin(0)

    @property
    def progress(self) -> float:
        """Epochs so far, counting parts of one."""
        return self.epoch + self.position / self.total

    def begin(self, epoch: int) -> None:
        """Move to the beginning of an epoch."""
        self.epoch, self.position = epoch, 0
        self.order = np.arange(self.total, dtype=np.int32)
        np.random.default_rng((self.seed, epoch)).shuffle(self.order)

    def take(self, count: int, skipped: Mask | None = None) -> NDArray[np.int32]:
        """Take the next `count`, none twice; across an epoch's end those already taken come last.

        Args:
            count: At most `total`.
            skipped: Members to skip, shape (total,). If too few remain within this epoch and the
                next, fewer are returned.
        """
        chosen = self.rest(count, skipped)
        missing = count - len(chosen)
        if missing:
            self.begin(self.epoch + 1)
            twice = np.zeros(self.total, dtype=bool)
            twice[chosen] = True
            twice = twice[self.order]
            self.order = np.concatenate([self.order[~twice], self.order[twice]])
            more = self.rest(missing, skipped, self.total - len(chosen))
            chosen = np.concatenate([chosen, more])
        return chosen

    def rest(
        self, count: int, skipped: Mask | None = None, end: int | None = None
    ) -> NDArray[np.int32]:
        """Take the next `count` of this epoch, or as many as remain before `end`."""
        left = self.order[self.position : end]
        fit = np.arange(len(left)) if skipped is None else np.flatnonzero(~skipped[left])
        fit = fit[:count]
        if count:
            self.position += len(left) if len(fit) < count else int(fit[-1]) + 1
        return left[fit]
