"""Fit the simulated engine's lengths of responses to recorded ones."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rollwise.engines.simulated import Lengths

ROUNDS = 500
"""The most rounds of EM."""


def fit_lengths(tokens: ArrayLike, truncated: ArrayLike, correct: ArrayLike) -> Lengths:
    """Fit log-normal lengths, of which those that were cut are known to be longer.

    The logarithms of the lengths of correct and of incorrect responses are normal, with one
    standard deviation and two means (a tobit model), found by expectation maximisation. Where all
    responses of a kind were cut, their mean is only what the rounds reach. Where one kind is
    missing, both have the same length.

    Args:
        tokens: Lengths of R ≥ 2 responses, as drawn, shape (R,).
        truncated: Whether each was cut there, shape (R,).
        correct: Whether each was correct, shape (R,).

    Returns:
        The lengths; `longest` is the longest one seen.

    Raises:
        ValueError: There are fewer than two responses that were not cut.
    """
    tokens_R, cut_R = np.asarray(tokens), np.asarray(truncated, dtype=bool)
    kinds_R = np.asarray(correct, dtype=bool).astype(int)
    if (~cut_R).sum() < 2:
        raise ValueError(
            f"lengths need at least 2 responses that were not cut, got {(~cut_R).sum()}"
        )
    logs_R = np.log(np.maximum(tokens_R, 1.0))
    means, sigma = _fit(logs_R, cut_R, kinds_R)
    median, incorrect = (math.exp(means[kind]) for kind in (1, 0))
    return Lengths(median, sigma, int(tokens_R.max()), incorrect / median)


def _fit(
    logs_R: NDArray[np.float64], cut_R: NDArray[np.bool_], kinds_R: NDArray[np.int64]
) -> tuple[Sequence[float], float]:
    """Return the means of incorrect and correct responses, and the standard deviation."""
    means = np.full(2, logs_R.mean())
    sigma = max(float(logs_R.std()), 1e-3)
    for _ in range(ROUNDS):
        before = (*means, sigma)
        expected_R, variance_R = logs_R.copy(), np.zeros(len(logs_R))
        z_C = (logs_R[cut_R] - means[kinds_R[cut_R]]) / sigma
        hazard_C = _hazard(z_C)
        expected_R[cut_R] = means[kinds_R[cut_R]] + sigma * hazard_C
        variance_R[cut_R] = sigma**2 * np.maximum(1 + z_C * hazard_C - hazard_C**2, 0.0)
        for kind in (0, 1):
            of_kind = expected_R[kinds_R == kind]
            means[kind] = of_kind.mean() if len(of_kind) else expected_R.mean()
        sigma = math.sqrt(float(np.mean((expected_R - means[kinds_R]) ** 2 + variance_R)))
        if sigma == 0 or np.allclose(before, (*means, sigma), rtol=0, atol=1e-6):
            break
    return means.tolist(), min(sigma, 10.0)


def _hazard(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """φ(z) / (1 − Φ(z)): how far the mean of what is above z lies above 0."""
    hazard: NDArray[np.float64] = np.exp(stats.norm.logpdf(z) - stats.norm.logsf(z))
    return hazard
