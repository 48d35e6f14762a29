"""Estimates of pass rates: from counts that were fixed in advance, and from pools that stopped."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.checks import at_least
from rollwise.sampling.pool import Pool
from rollwise.sampling.stopping import Bools, Floats, Stopping


def pass_at_k(drawn: ArrayLike, correct: ArrayLike, k: int) -> Any:
    """Estimate the probability that at least one of `k` responses is correct.

    1 − C(n − c, k)/C(n, k), unbiased for n responses whose number was fixed in advance (Chen et al.
    2021, arXiv 2107.03374, equation 1); not for a pool that stopped because of what it held.

    Args:
        drawn: n, responses drawn; an integer or an array.
        correct: c, those that are correct; its shape broadcasts with `drawn` to the result's.
        k: At most the smallest `drawn`.

    Raises:
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


class Estimates(NamedTuple):
    """Unbiased estimates of p and p(1 − p), shape (B + 1, B + 1), by [positives, negatives].

    NaN for counts that sampling never reaches, before the first draw, and for p(1 − p) where
    sampling is cut short at one draw, or always stops there.
    """

    pass_rate: Floats
    variance: Floats


def unbiased_estimates(stopping: Stopping) -> Estimates:
    """Estimate p and p(1 − p) without bias from pools that stopped because of what they held.

    For the counts (n₊, n₋), let P be the number of draw sequences that reach them without having
    stopped before, P₁ those of them that begin with a correct draw, P₁₀ those that begin correct,
    incorrect. Given the counts, all P are equally likely, so P₁/P and P₁₀/P are the conditional
    expectations of unbiased estimates from the first one and two draws (Girshick, Mosteller and
    Savage 1946; Rao-Blackwell). They also hold for pools cut short at a number of draws that does
    not depend on their own outcomes (at two or more, for p(1 − p)).
    """
    return _unbiased(stopping.stops.tobytes(), stopping.budget)


def estimates_of(pool: Pool) -> tuple[float, float] | None:
    """Return the unbiased estimates of p and p(1 − p); None at counts that it cannot reach.

    A `ValueError` if the pool does not know its stopping.
    """
    stopping = pool.stopping
    if stopping is None:
        raise ValueError(
            f"estimates = 'unbiased' needs the stopping rule of prompt {pool.key!r}: take its "
            "pool from a RolloutSession, or set pool.stopping = Stopping(rule, schedule, budget)"
        )
    tables, state = unbiased_estimates(stopping), (pool.positives, pool.negatives)
    found = float(tables.pass_rate[state]), float(tables.variance[state])
    return None if np.isnan(found).any() else found


@lru_cache(maxsize=64)
def _unbiased(stops_bytes: bytes, budget: int) -> Estimates:
    stops = np.frombuffer(stops_bytes, dtype=bool).reshape(budget + 1, budget + 1)
    drawn = np.add.outer(np.arange(budget + 1), np.arange(budget + 1))
    every = _sequences(stops, (0, 0))
    reached = every > 0
    two_seen = reached & reached[1, 1] & ((drawn >= 2) | (stops & (drawn == 1)))
    pass_rate = _ratio(_sequences(stops, (1, 0)), every, reached & (drawn >= 1))
    return Estimates(pass_rate, _ratio(_sequences(stops, (1, 1)), every, two_seen))


def _sequences(stops: Bools, start: tuple[int, int]) -> NDArray[np.object_]:
    """Count the draw sequences from `start` to every state that do not stop on the way."""
    counts = np.zeros(stops.shape, dtype=object)
    counts[start] = 1
    for drawn in range(sum(start), len(stops) - 1):
        up = np.arange(drawn + 1)
        down = drawn - up
        going_on = np.where(stops[up, down], 0, counts[up, down])
        counts[up + 1, down] += going_on
        counts[up, down + 1] += going_on
    return counts


def _ratio(part: NDArray[np.object_], whole: NDArray[np.object_], known: Bools) -> Floats:
    ratio = np.full(part.shape, np.nan)
    ratio[known] = (part[known] / whole[known]).astype(float)
    return ratio
