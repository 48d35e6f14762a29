"""What a number of responses says about a policy."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollwise.sampling.checks import at_least


def pass_at_k(drawn: ArrayLike, correct: ArrayLike, k: int) -> Any:
    """Estimate the probability that at least one of `k` responses is correct.

    1 − C(n − c, k)/C(n, k), unbiased for n responses whose number was fixed beforehand (Chen et
    al. 2021, arXiv 2107.03374, equation 1); not for a pool that stopped because of what it held.

    Args:
        drawn: n, responses drawn; an integer or an array.
        correct: c, those that are correct; of a shape that broadcasts with `drawn`.
        k: At most the smallest `drawn`.

    Returns:
        A float, or an array of the broadcast shape.

    Raises:
        TypeError: k is not an integer.
        ValueError: k below 1 or above `drawn`, or a count outside 0 to `drawn`.
    """
    n, c = np.broadcast_arrays(np.asarray(drawn), np.asarray(correct))
    at_least("k", k, 1)
    if np.any(n < k):
        raise ValueError(f"k must lie between 1 and the responses drawn ({n.min()}), got {k}")
    if not np.all((c >= 0) & (c <= n)):
        raise ValueError("correct must lie between 0 and drawn")
    steps = np.arange(k)
    misses = np.maximum(n[..., None] - c[..., None] - steps, 0) / (n[..., None] - steps)
    result = 1.0 - misses.prod(axis=-1)
    return float(result) if result.ndim == 0 else result
