"""Baselines from a belief: what is expected of a response before it is compared.

A pool holds N responses. Its prior (α, β) is the Beta distribution that the prompt's pass rate was
believed to have before the step.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.pool import Pool

Floats = NDArray[np.float64]

LONGEST_SHIFT = 2.0
"""Of a belief, in logits: one Newton step leads too far where beliefs near 0 or 1 are wrong."""


def shift_beliefs(pools: Iterable[Pool], weights: ArrayLike | None = None) -> None:
    """Move the belief about each prompt by what all other prompts of a step show.

    A policy that changed faster than was believed fails the expectations of all prompts alike: all
    advantages of the step then have one sign, which can change the policy further.

    With m_i the expected pass rate of prompt i, k_i correct of its N_i responses, and w_i its
    weight, logit m_i is moved by δ_i = Σ w_j·(k_j − N_j·m_j) / Σ w_j·(1/(P − 1) + N_j·m_j(1 −
    m_j)), both sums over j ≠ i, and by at most 2 either way: one Newton step towards the shift,
    common to all prompts, with which the others' advantages add up to 0, held back as by a prior of
    N(0, 1). A prompt's own responses have no part in it, so that the gradient keeps its
    expectation.

    Args:
        pools: Of a step, P of them, each with a prior. Sets `shift` of each.
        weights: In proportion to a response's weight in the loss, shape (P,): the mean number of
            tokens of its responses, where each token counts alike. By default all count alike.
    """
    pools = list(pools)
    weight_P = np.ones(len(pools)) if weights is None else np.asarray(weights, dtype=float)
    alpha_P, beta_P = np.array([pool.prior or (1.0, 1.0) for pool in pools]).reshape(-1, 2).T
    mean_P = alpha_P / (alpha_P + beta_P)
    drawn_P = np.array([len(pool) for pool in pools])
    correct_P = np.array([pool.positives for pool in pools])
    surprise_P = weight_P * (correct_P - drawn_P * mean_P)
    slope_P = weight_P * (1 / max(1, len(pools) - 1) + drawn_P * mean_P * (1 - mean_P))
    others_P, steepness_P = surprise_P.sum() - surprise_P, slope_P.sum() - slope_P
    shift_P = np.divide(others_P, steepness_P, out=np.zeros(len(pools)), where=steepness_P > 0)
    for pool, shift in zip(pools, shift_P.clip(-LONGEST_SHIFT, LONGEST_SHIFT), strict=True):
        pool.shift = float(shift)


def shifted_prior(pool: Pool) -> tuple[float, float]:
    """Return α and β of a pool's belief, moved by its `shift`; the strength α + β stays."""
    alpha, beta = pool.prior or (1.0, 1.0)
    ratio = beta / alpha * np.exp(-pool.shift)  # (1 − m)/m
    return (alpha + beta) / (1 + ratio), (alpha + beta) * ratio / (1 + ratio)


def belief_baseline(pool: Pool) -> Floats:
    """Expect each response of a pool from the belief and from the prompt's other draws, (N,).

    α and β are those of `shifted_prior`. Where the number of draws was fixed, from all others: b_i
    = (α + Σ_{j≠i} r_j)/(α + β + N − 1), the leave-one-out mean shrunk to the belief. Where sampling
    stopped because of what it had drawn, from the earlier ones alone: b_i = (α + Σ_{j<i} r_j)/(α +
    β + i − 1). The terms (r_i − b_i)·∇log π_i − ∇p are then martingale differences, so that their
    sum over a pool is E[N]·∇p in expectation, whatever the stopping rule (Wald's identity).
    """
    alpha, beta = shifted_prior(pool)
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
