"""Shuffled epochs: each of a set once before any comes again."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_WINDOW = 1 << 12


class Epochs:
    """Walks through 0 to `total` − 1 in an order that is shuffled for every epoch.

    Args:
        total: Members of the set.
        seed: With the epoch's number it makes the order.
        epoch: The number of the first epoch.

    Attributes:
        epoch: The number of this epoch, from 0.
        order: The order of this epoch, shape (total,).
        position: Members of it that have been walked.
    """

    def __init__(self, total: int, seed: int, epoch: int = 0) -> None:
        self.total, self.seed = total, seed
        self.begin(epoch)

    @property
    def progress(self) -> float:
        """Epochs walked, parts of one included."""
        return self.epoch + self.position / self.total

    def begin(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self.epoch, self.position = epoch, 0
        self.order = np.arange(self.total, dtype=np.int32)
        np.random.default_rng((self.seed, epoch)).shuffle(self.order)

    def take(
        self,
        count: int,
        passed_over: Callable[[NDArray[np.int32]], NDArray[np.bool_]] | None = None,
    ) -> NDArray[np.int32]:
        """Take the next `count`; a batch that crosses an epoch's end has none twice either.

        Those of the new epoch that the batch has already come last in it.

        Args:
            count: At most `total`.
            passed_over: Says which of some members lose their turn; by default none. Where too
                few are left within this epoch and the next, fewer come back.
        """
        chosen = self.rest(count, passed_over)
        missing = count - len(chosen)
        if missing:
            self.begin(self.epoch + 1)
            twice = np.zeros(self.total, dtype=bool)
            twice[chosen] = True
            twice = twice[self.order]
            self.order = np.concatenate([self.order[~twice], self.order[twice]])
            more = self.rest(missing, passed_over, self.total - len(chosen))
            chosen = np.concatenate([chosen, more])
        return chosen

    def rest(
        self,
        count: int,
        passed_over: Callable[[NDArray[np.int32]], NDArray[np.bool_]] | None = None,
        end: int | None = None,
    ) -> NDArray[np.int32]:
        """Take the next `count` of this epoch, or what is left of it before `end`."""
        end = self.total if end is None else end
        found = [self.order[:0]]
        while count and self.position < end:
            window = self.order[self.position : min(self.position + max(count, _WINDOW), end)]
            fit = np.arange(len(window))
            if passed_over is not None:
                fit = np.flatnonzero(~passed_over(window))
            fit = fit[:count]
            count -= len(fit)
            self.position += len(window) if count else int(fit[-1]) + 1
            found.append(window[fit])
        return np.concatenate(found)
