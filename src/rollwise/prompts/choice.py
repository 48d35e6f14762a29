"""Choosing the few best of very many prompts, exactly, in one pass and with little memory."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Places

Mask = NDArray[np.bool_]
"""One truth value for each prompt, shape (P,), in key order."""

BLOCK = 1 << 14
"""Prompts in a block, few enough for its temporary arrays to stay in the cache."""


def blocks(total: int) -> list[slice]:
    """Cut `total` places into blocks."""
    return [slice(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK)]


class Smallest:
    """Keeps the `count` smallest scores of a stream; of equal ones those that came first.

    Attributes:
        bound: Only a score below this can still be among them; infinite at first.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.bound = np.inf
        self._places: Places = np.empty(0, dtype=np.int64)
        self._scores = np.empty(0)

    def add(self, places: Places, scores: NDArray[np.float64]) -> None:
        """Take in candidates, shape (C,) each, whose places come after all earlier ones."""
        self._places = np.concatenate([self._places, places])
        self._scores = np.concatenate([self._scores, scores])
        if len(self._places) > 2 * self.count:
            self._drop()

    def _drop(self) -> None:
        """Drop all but the best; the last of them is the new bound."""
        if not 0 < self.count < len(self._scores):
            self._places, self._scores = self._places[: self.count], self._scores[: self.count]
            return
        last = np.partition(self._scores, self.count - 1)[self.count - 1]
        kept = self._scores < last
        ties = np.flatnonzero(self._scores == last)
        kept[ties[: self.count - np.count_nonzero(kept)]] = True
        self._places, self._scores, self.bound = self._places[kept], self._scores[kept], last

    def places(self) -> Places:
        """Return the places of the smallest, best first; fewer if fewer were added."""
        self._drop()
        return self._places[np.argsort(self._scores, kind="stable")]


def smallest(total: int, count: int, scores_of: Callable[[slice], NDArray[np.float64]]) -> Places:
    """Find the `count` places of the smallest scores, best first, ties by place.

    Args:
        total: The number of places.
        count: How many are wanted; fewer are returned if fewer have a finite score.
        scores_of: Gives the scores of a block of places; infinity leaves a place out.
    """
    best = Smallest(count)
    for block in blocks(total) if count else ():
        scores = scores_of(block)
        near = np.flatnonzero(scores < best.bound)
        if near.size:
            best.add(near + block.start, scores[near])
    return best.places()


def nearest_on_both_sides(
    values: NDArray[np.float64], centre: float, count: int, exclude: Mask | None = None
) -> Places:
    """Find the places of half the `count` nearest values above `centre`, half at or below it.

    CDAS's symmetric choice (arXiv 2505.17652): if one side is short, the other fills up. Of an odd
    count the larger part is at or below. Equal values are taken in the order of their places. If
    fewer than `count` are not excluded, fewer are returned.

    Args:
        values: Shape (P,), finite.
        centre: The value to be near to.
        count: How many are wanted.
        exclude: Which to leave out, shape (P,).

    Returns:
        Places in ascending order.
    """
    above, below = Smallest(count), Smallest(count)
    for block in blocks(len(values)) if count else ():
        part = values[block]
        near = np.flatnonzero((part > -below.bound) & (part < above.bound))
        if exclude is not None and near.size:
            near = near[~exclude[block][near]]
        if near.size:
            found = part[near]
            up = found > centre
            above.add(near[up] + block.start, found[up])
            below.add(near[~up] + block.start, -found[~up])
    higher, lower = above.places(), below.places()
    from_lower = min(count - min(count // 2, len(higher)), len(lower))
    return np.sort(np.concatenate([higher[: count - from_lower], lower[:from_lower]]))


CANDIDATES_HELP = "At most so many prompts, drawn uniformly, compete at a step."


def draw_candidates(
    rng: np.random.Generator, total: int, count: int, most: int, exclude: Mask | None
) -> Places:
    """Draw the places that compete for a batch, none of them excluded; all if they are few.

    Args:
        rng: Draws them.
        total: The number of places.
        count: How many are wanted in the end.
        most: The most that compete; at least `count` do.
        exclude: Which to leave out, shape (total,).
    """
    wanted = max(count, most)
    if total > wanted:
        drawn = rng.choice(total, wanted, replace=False, shuffle=False)
        if exclude is None or np.count_nonzero(~exclude[drawn]) >= count:
            return drawn if exclude is None else drawn[~exclude[drawn]]
    allowed = np.arange(total) if exclude is None else np.flatnonzero(~exclude)
    if len(allowed) > wanted:
        allowed = rng.choice(allowed, wanted, replace=False, shuffle=False)
    return allowed
