"""From a group to the advantages of its members."""

from collections.abc import Callable
from math import sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.checks import one_of
from rollwise.sampling.estimators import unbiased_estimates
from rollwise.sampling.pool import Pool
from rollwise.sampling.selection import Group

Objective = Literal["reference", "grpo", "linear", "log", "sqrt", "arcsine", "reward"]
"""`reference`: the baseline is the mean of the whole pool. `grpo`: that of the group. `linear`,
`log`, `sqrt`, `arcsine`: the gradient of p, log p, √p, 2 arcsin √p. `reward`: no baseline."""

EstimateMethod = Literal["plug_in", "unbiased"]
"""`plug_in`: the share of correct responses for p. `unbiased`: what allows for the stopping."""

STD_EPSILON = 1e-4
"""Added to a standard deviation that is divided by (TRL's and DeepSeekMath's practice)."""

SIDE_WEIGHTS: dict[Objective, Callable[[float, float], float]] = {
    "linear": lambda pass_rate, variance: variance,
    "log": lambda pass_rate, variance: 1 - pass_rate,
    "sqrt": lambda pass_rate, variance: sqrt(variance * (1 - pass_rate)) / 2,
    "arcsine": lambda pass_rate, variance: sqrt(variance),
}
"""f′(p)·p(1 − p) from estimates of p and of p(1 − p), so written that f′ needs no division."""


def check_objective(objective: Objective, scale_by_std: bool, estimates: EstimateMethod) -> None:
    """Refuse settings that do not go together.

    Raises:
        ValueError: An unknown name; `scale_by_std` where nothing is centred; `unbiased` where
            nothing is estimated.
    """
    one_of("objective", objective, get_args(Objective))
    one_of("estimates", estimates, get_args(EstimateMethod))
    if scale_by_std and objective not in ("reference", "grpo"):
        raise ValueError(
            "scale_by_std divides rewards that a mean was subtracted from (objective 'reference' "
            f"or 'grpo'); the scale of objective {objective!r} is part of what it optimises"
        )
    if estimates == "unbiased" and objective not in SIDE_WEIGHTS:
        raise ValueError(
            f"estimates = 'unbiased' is for objective {', '.join(SIDE_WEIGHTS)}; objective "
            f"{objective!r} estimates no pass rate"
        )


def advantages(
    pool: Pool,
    group: Group,
    objective: Objective = "reference",
    *,
    scale_by_std: bool = False,
    estimates: EstimateMethod = "plug_in",
) -> NDArray[np.float64]:
    """Say how much to reinforce each member of `group`, shape (k,).

    * `reference`: A_i = r_i − mean(r over the pool), Reinforce-Ada's global statistics
      (arXiv 2510.04996, section 3). The mean is that of the rewards themselves, so it is right for
      shaped rewards too. The advantages of a group need not sum to 0.
    * `grpo`: A_i = r_i − mean(r over the group) (DeepSeekMath, arXiv 2402.03300, section 4.1).
    * `linear`, `log`, `sqrt`, `arcsine`: A = f′(p)·p(1 − p)·k/k₊ for the k₊ correct members and
      −f′(p)·p(1 − p)·k/k₋ for the k₋ incorrect ones, with f(p) = p, log p, √p, 2 arcsin √p. The
      mean of A·∇log π over the group is then f′(p)·∇p in expectation, whatever the share of either
      side. Of a group with one side only that side's part remains, (1 − p)·f′(p)·∇p for correct
      members and p·f′(p)·∇p for incorrect ones. They look only at the side of the threshold that a
      reward lies on. A pool that is uniform, all correct or all incorrect gets zeros.
    * `reward`: A_i = r_i. With groups of correct responses this is RAFT, with whole mixed pools
      Reinforce-Rej (arXiv 2504.11343); only here does a uniform pool keep its advantages.

    `scale_by_std` divides by the sample standard deviation of the same responses (n − 1 in the
    denominator, plus 1e-4): GRPO as published has it, Reinforce-Ada and Dr. GRPO do not. Responses
    whose rewards are all equal get advantages of exactly 0, never a rounding error divided by one.

    `estimates` says what stands for p and p(1 − p) in the weights f′(p)·p(1 − p). `plug_in` takes
    n₊/N, which leans away from p in a pool that stopped because of what it held. `unbiased` takes
    `unbiased_estimates`: `linear` is then exact whatever the rule, `log` but for the probability
    that no response is correct; `sqrt` and `arcsine` take square roots of the estimates and are
    exact under neither. A pool at counts that its stopping cannot come to, as happens after a lost
    draw, has plug-in weights.

    Raises:
        ValueError: Settings that do not go together (`check_objective`), or `unbiased` for a pool
            that does not know its stopping or has outgrown its budget.
    """
    check_objective(objective, scale_by_std, estimates)
    if objective in SIDE_WEIGHTS:
        return _weigh_sides(pool, group, objective, estimates)
    if objective == "reward":
        return group.rewards.copy()
    compared_with = pool.rewards if objective == "reference" else group.rewards
    if (pool if objective == "reference" else group).uniform:
        return np.zeros(len(group))
    centred: NDArray[np.float64] = group.rewards - compared_with.mean()
    return centred / (compared_with.std(ddof=1) + STD_EPSILON) if scale_by_std else centred


def _weigh_sides(
    pool: Pool, group: Group, objective: Objective, estimates: EstimateMethod
) -> NDArray[np.float64]:
    found = _unbiased(pool) if estimates == "unbiased" else None
    if pool.uniform or not (pool.positives and pool.negatives):
        return np.zeros(len(group))
    weight = SIDE_WEIGHTS[objective](*(found or _plug_in(pool)))
    correct = pool.correct[group.indices]
    members = len(group)
    n_correct = int(correct.sum())
    of_correct = weight * members / max(n_correct, 1)
    of_incorrect = -weight * members / max(members - n_correct, 1)
    return np.where(correct, of_correct, of_incorrect)


def _plug_in(pool: Pool) -> tuple[float, float]:
    pass_rate = pool.positives / len(pool)
    return pass_rate, pass_rate * (1 - pass_rate)


def _unbiased(pool: Pool) -> tuple[float, float] | None:
    """Look up the estimates of p and p(1 − p); None where the stopping does not come to."""
    if pool.stopping is None:
        raise ValueError(
            f"estimates = 'unbiased' needs to know how prompt {pool.key!r} was to stop: take its "
            "pool from a RolloutSession, or set pool.stopping = Stopping(rule, schedule, budget)"
        )
    if len(pool) > pool.stopping.budget:
        raise ValueError(
            f"prompt {pool.key!r} has {len(pool)} responses, more than the budget of its stopping, "
            f"{pool.stopping.budget}"
        )
    tables, state = unbiased_estimates(pool.stopping), (pool.positives, pool.negatives)
    found = float(tables.pass_rate[state]), float(tables.variance[state])
    return None if np.isnan(found).any() else found
