"""Means over problems with 95 % intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

RESAMPLES = 9999
"""Bootstrap samples of an interval."""

DRAWN_AT_ONCE = 2**22
"""Values of bootstrap samples that are in memory at a time."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def verdict(self, above: str, below: str) -> str:
        """Say on which side of 0 the interval lies; `not shown` where it spans 0."""
        if self.low > 0:
            return above
        return below if self.high < 0 else "not shown"


def mean_over_problems(values: ArrayLike, seed: int = 0) -> Estimate:
    """Average a value in [0, 1] over problems, shape (P,), with its 95 % interval.

    The interval is a percentile bootstrap over problems, because the responses to one problem are
    not independent. If all problems have the same value, a bootstrap has no spread; the interval is
    then the exact binomial one (Clopper and Pearson 1934) with one trial for each problem.
    """
    values_P = np.asarray(values, dtype=float)
    mean, count = float(values_P.mean()), len(values_P)
    if np.ptp(values_P) == 0:
        exact = stats.binomtest(round(mean * count), count).proportion_ci(method="exact")
        return Estimate(mean, float(exact.low), float(exact.high))
    interval = stats.bootstrap(
        (values_P,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, DRAWN_AT_ONCE // count),
        method="percentile",
        rng=seed,
    ).confidence_interval
    return Estimate(mean, float(interval.low), float(interval.high))


def paired_difference(first: ArrayLike, second: ArrayLike, seed: int = 0) -> Estimate:
    """Average the difference of a value in [0, 1] over the same problems, with its interval.

    Problems are resampled with both of their values, shape (P,) each, so the interval does not
    include how problems differ in difficulty. If all differences are equal, a bootstrap has no
    spread; then at most the share u of problems has another difference, by the exact binomial bound
    for none in P.
    """
    differences_P = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    mean = float(differences_P.mean())
    if np.ptp(differences_P) == 0:
        u = 1 - 0.025 ** (1 / len(differences_P))
        return Estimate(mean, max(-1.0, mean - u * (1 + mean)), min(1.0, mean + u * (1 - mean)))
    halved = mean_over_problems((differences_P + 1) / 2, seed)  # it takes values in [0, 1]
    return Estimate(mean, 2 * halved.low - 1, 2 * halved.high - 1)


def binomial_intervals(
    correct: ArrayLike, drawn: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exact 95 % intervals of pass rates (Clopper and Pearson 1934), NaN where n = 0.

    c of n responses are correct. These and the lower and upper ends have shape (P,) each.
    """
    c, n = np.asarray(correct), np.asarray(drawn)
    low = np.where(c == 0, 0.0, stats.beta.ppf(0.025, np.maximum(c, 1), n - c + 1))
    high = np.where(c == n, 1.0, stats.beta.ppf(0.975, c + 1, np.maximum(n - c, 1)))
    return np.where(n == 0, np.nan, low), np.where(n == 0, np.nan, high)


def evaluation(
    correct: Sequence[int], k: int, drawn: Sequence[int] | None = None
) -> dict[str, dict[str, float]]:
    """Return `avg@k` and `pass@k`, each `{"value", "low", "high"}`, of k responses to each problem.

    `correct` says how many are correct, and `drawn` how many were not lost (by default k), (P,).
    """
    correct_P, drawn_P = np.asarray(correct), np.full(len(correct), k) if drawn is None else drawn
    named = {f"avg@{k}": correct_P / drawn_P, f"pass@{k}": (correct_P > 0).astype(float)}
    return {name: vars(mean_over_problems(values)) for name, values in named.items()}
