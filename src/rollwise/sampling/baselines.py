"""Baselines from a belief: what is expected of a response before it is compared.

A pool holds N responses. Its prior (α, β) is the Beta distribution that the prompt's pass rate was
believed to have before the step.
"""

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.pool import Pool

Floats = NDArray[np.float64]


def belief_baseline(pool: Pool) -> Floats:
    """Expect each response of a pool from the belief and from the prompt's other draws, (N,).

    α and β are the pool's prior, or 1 and 1. Where the number of draws was fixed, from all others:
    b_i = (α + Σ_{j≠i} r_j)/(α + β + N − 1), the leave-one-out mean shrunk to the belief. Where
    sampling stopped because of what it had drawn, from the earlier ones alone: b_i = (α + Σ_{j<i}
    r_j)/(α + β + i − 1). The terms (r_i − b_i)·∇log π_i − ∇p are then martingale differences, so
    that their sum over a pool is E[N]·∇p in expectation, whatever the stopping rule (Wald's
    identity).
    """
    alpha, beta = pool.prior or (1.0, 1.0)
    correct = pool.correct.astype(float)
    if pool.stopping is not None and pool.stopping.is_fixed:
        known, count = correct.sum() - correct, np.full(len(pool), len(pool) - 1.0)
    else:
        known, count = np.cumsum(correct) - correct, np.arange(len(pool), dtype=float)
    baseline: Floats = (alpha + known) / (alpha + beta + count)
    return baseline


def share_of_draws(pool: Pool) -> float:
    """1 / E[N] under the belief, relative to the fewest draws, by which all prompts weigh alike."""
    if pool.stopping is None:
        return 1.0
    return float(pool.stopping.certain_need[0, 0] / pool.stopping.expected_need[0, 0])
