"""Means over problems with 95 % intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

Floats = NDArray[np.float64]

STEP = 0.15
"""Of a numerical integral; its error is the probability of a sum 40 standard deviations off."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def verdict(self, above: str, below: str) -> str:
        """Return `above` or `below` by the side of 0 on which the interval lies, or `not shown`."""
        if self.low > 0:
            return above
        return below if self.high < 0 else "not shown"


def mean_over_problems(values: ArrayLike) -> Estimate:
    """Return the mean of a value in [0, 1] over problems, shape (P,), with its 95 % interval.

    The interval (Gaffke 2005; Learned-Miller and Thomas 2019, arXiv 1905.06208) is for all problems
    like these, however the responses to one problem depend on each other. It is monotone in each
    value, and the exact binomial one (Clopper and Pearson 1934) for values of 0 and 1. For others
    its coverage of at least 95 % is a conjecture without a known counterexample; for avg@32 of 5 to
    100 problems it was 96 to 100 % (`benchmarks/predictions/intervals.py`). A ValueError without
    values in [0, 1].
    """
    values_P = np.asarray(values, dtype=float)
    if not (len(values_P) and 0 <= values_P.min() <= values_P.max() <= 1):
        raise ValueError(f"values of one or more problems must be in [0, 1], got {values_P}")
    return _interval(values_P, 0.0, 1.0)


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Return the mean of first − second over the same problems, shape (P,) each, with its interval.

    Values are in [0, 1]. The interval is made as that of `mean_over_problems`, but the observation
    that is added has the size Σ d² / Σ |d| of the differences d, or 1 if there are none. So it
    excludes 0 exactly where McNemar's exact test has p < 0.05, if values are 0 and 1, and where the
    sign test has, if all differences have one size. For others no theorem is known; of equal models
    it showed about 5 % at most to differ (`benchmarks/predictions/intervals.py`).
    """
    differences_P = np.round(np.asarray(first, float) - np.asarray(second, float), 12)
    sizes_P = np.abs(differences_P)
    size = float(sizes_P @ sizes_P / sizes_P.sum()) if sizes_P.any() else 1.0
    return _interval(differences_P, -size, size)


def _interval(values_P: Floats, low: float, high: float) -> Estimate:
    """Return the mean of values with Gaffke's 95 % interval.

    Its ends are quantiles of the mean with weights of Dirichlet(1, ..., 1), of the values and one
    observation that is added: `low` for the lower end, `high` for the upper one.
    """
    low = _weighted_mean_quantile(np.append(values_P, low), 0.025)
    high = _weighted_mean_quantile(np.append(values_P, high), 0.975)
    return Estimate(float(values_P.mean()), low, high)


def _weighted_mean_quantile(values: Floats, share: float) -> float:
    """Return the quantile of Σ w x for weights w of Dirichlet(1, ..., 1)."""
    levels, counts = np.unique(values, return_counts=True)
    if len(levels) == 1:
        return float(levels[0])

    def excess(mean: float) -> float:
        # Σ w x < mean where Σ g (x − mean) < 0, with independent g of Exp(1), whose characteristic
        # function is inverted numerically (Davies 1973), up to where it is below 3e-7.
        if not levels[0] < mean < levels[-1]:
            return float(mean >= levels[-1]) - share
        gaps = levels - mean
        gaps /= np.sqrt(counts @ gaps**2)
        end = 8.0
        while counts @ np.log1p((gaps * end) ** 2) / 2 + np.log(end) < 15:
            end *= 2
        u = np.arange(STEP / 2, end, STEP)
        characteristic = np.exp(-counts @ np.log(1 - 1j * np.outer(gaps, u)))
        return 0.5 - share - STEP / np.pi * float((characteristic.imag / u).sum())

    # Cantelli's inequality bounds the quantile.
    odds = share / (1 - share)
    mean, deviation = values.mean(), values.std() / np.sqrt(len(values) + 1)
    low, high = mean - deviation / np.sqrt(odds), mean + deviation * np.sqrt(odds)
    within = float(max(low, levels[0])), float(min(high, levels[-1]))
    return float(optimize.brentq(excess, *within, xtol=1e-9))


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
