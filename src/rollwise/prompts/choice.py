"""Choosing the few best of many prompts."""

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Indices
from rollwise.prompts.keys import Mask


def smallest(scores: NDArray[np.float64], count: int, exclude: Mask | None = None) -> Indices:
    """Find the indices of the `count` smallest scores, best first, ties by index.

    Scores that are infinite or NaN, and excluded ones, are left out; then fewer may be returned.
    """
    if exclude is not None:
        scores = np.where(exclude, np.inf, scores)
    count = min(count, int(np.count_nonzero(scores < np.inf)))
    if not count:
        return np.empty(0, dtype=np.int64)
    last = np.partition(scores, count - 1)[count - 1]
    better = np.flatnonzero(scores < last)
    ties = np.flatnonzero(scores == last)[: count - len(better)]
    chosen = np.concatenate([better, ties])
    return chosen[np.argsort(scores[chosen], kind="stable")]


def nearest_on_both_sides(
    values: NDArray[np.float64], centre: float, count: int, exclude: Mask | None = None
) -> Indices:
    """Find the indices, ascending, of the nearest values to `centre`, half of them above it.

    CDAS's symmetric choice (arXiv 2505.17652): if one side is short, the other fills up. With an
    odd count, the larger part is at or below `centre`. Equal values are taken by index.
    """
    above = values > centre
    higher = smallest(np.where(above, values, np.inf), count, exclude)
    lower = smallest(np.where(above, np.inf, -values), count, exclude)
    from_lower = min(count - min(count // 2, len(higher)), len(lower))
    return np.sort(np.concatenate([higher[: count - from_lower], lower[:from_lower]]))
