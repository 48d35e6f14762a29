"""From a group to the advantages of its members."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.checks import one_of
from rollwise.sampling.pool import Pool
from rollwise.sampling.selection import Group

Objective = Literal["reference", "grpo"]
"""`reference`: the baseline is the mean of the whole pool. `grpo`: that of the group."""

STD_EPSILON = 1e-4
"""Added to a standard deviation that is divided by (TRL's and DeepSeekMath's practice)."""


def advantages(
    pool: Pool,
    group: Group,
    objective: Objective = "reference",
    *,
    scale_by_std: bool = False,
) -> NDArray[np.float64]:
    """Say how much better each member of `group` did than expected, shape (k,).

    * `reference`: A_i = r_i − mean(r over the pool), Reinforce-Ada's global statistics
      (arXiv 2510.04996, section 3). The mean is that of the rewards themselves, so it is right for
      shaped rewards too. The advantages of a group need not sum to 0.
    * `grpo`: A_i = r_i − mean(r over the group) (DeepSeekMath, arXiv 2402.03300, section 4.1).

    `scale_by_std` divides by the sample standard deviation of the same responses (n − 1 in the
    denominator, plus 1e-4): GRPO as published has it, Reinforce-Ada and Dr. GRPO do not. Responses
    whose rewards are all equal get advantages of exactly 0, never a rounding error divided by one.
    """
    one_of("objective", objective, get_args(Objective))
    compared_with = pool.rewards if objective == "reference" else group.rewards
    if (pool if objective == "reference" else group).uniform:
        return np.zeros(len(group))
    centred: NDArray[np.float64] = group.rewards - compared_with.mean()
    return centred / (compared_with.std(ddof=1) + STD_EPSILON) if scale_by_std else centred
