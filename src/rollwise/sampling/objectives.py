"""Objectives: from a group to the advantages of its members.

p is a prompt's pass rate. Its pool holds N responses, n₊ correct and n₋ incorrect; its group has k
members, k₊ correct and k₋ incorrect.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.checks import Checked, array_from, one_of
from rollwise.sampling.estimators import estimates_of
from rollwise.sampling.pool import Pool
from rollwise.sampling.selection import Group

Floats = NDArray[np.float64]

Baseline = Literal["pool", "belief"]
"""`pool`: what all responses drawn show. `belief`: what was expected before each draw."""

EstimateMethod = Literal["plug_in", "unbiased"]
"""`plug_in`: p by the share of correct responses. `unbiased`: by what allows for the stopping."""

ROUNDING_ERRORS = 128
"""How many rounding errors a sum over rewards, and what is computed from it, may hold."""

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing by it (TRL's and DeepSeekMath's practice)."""


class Objective(Checked, ABC):
    """Base class of objectives; one of your own defines `advantages` and is a frozen dataclass.

    Example:
        >>> @dataclass(frozen=True)
        ... class Signs(Objective):
        ...     def advantages(self, pool, group):
        ...         return np.sign(group.rewards - pool.rewards.mean())

    Attributes:
        looks_at_rewards: Whether rewards count by their size, not only as correct or incorrect.
        needs_variance: Whether a group whose rewards are all equal teaches nothing.
        uses_priors: Whether advantages depend on what was believed of the pass rate (`Pool.prior`).
    """

    looks_at_rewards: bool = True
    needs_variance: bool = True
    uses_priors: bool = False

    @abstractmethod
    def advantages(self, pool: Pool, group: Group) -> Floats:
        """Return how much to reinforce each member of `group`, of those in `pool`, shape (k,)."""


@dataclass(frozen=True)
class Reference(Objective):
    """A_i = r_i − mean(r over the pool): Reinforce-Ada's global statistics.

    arXiv 2510.04996, section 3. The mean is that of the rewards themselves, so it suits shaped
    rewards too. The advantages of a group need not sum to 0. With `scale_by_std` they are divided
    by std(r) + 1e-4, the standard deviation of a sample (n − 1 in the denominator). Rewards that
    are all equal give exactly 0, never a rounding error divided by one.
    """

    scale_by_std: bool = False
    """Divide by the standard deviation of the same rewards."""

    def advantages(self, pool: Pool, group: Group) -> Floats:
        return self._against(pool, group)

    def _against(self, others: Pool | Group, group: Group) -> Floats:
        if others.zero_variance:
            return np.zeros(len(group))
        centred: Floats = group.rewards - others.rewards.mean()
        if self.scale_by_std:
            centred /= others.rewards.std(ddof=1) + STD_EPSILON
        return centred


@dataclass(frozen=True)
class GRPO(Reference):
    """A_i = r_i − mean(r over the group): GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1).

    As published it has `scale_by_std`; Dr. GRPO does not.
    """

    def advantages(self, pool: Pool, group: Group) -> Floats:
        return self._against(group, group)


def belief_baseline(pool: Pool) -> Floats:
    """Return what is expected of each response of a pool by belief and other draws, shape (N,).

    α and β are the pool's prior, or 1 and 1. If the number of draws was fixed, all others count:
    b_i = (α + Σ_{j≠i} r_j)/(α + β + N − 1). If sampling stopped because of what it had drawn, only
    the earlier ones do: b_i = (α + Σ_{j<i} r_j)/(α + β + i − 1). The terms (r_i − b_i)·∇log π_i −
    ∇p are then martingale differences, so that their sum over a pool is E[N]·∇p in expectation,
    whatever the stopping rule (Wald's identity). Not with `normalize_gradients`, which divides each
    term by what depends on the response.
    """
    alpha, beta = pool.prior or (1.0, 1.0)
    correct = pool.correct.astype(float)
    if pool.stopping is not None and pool.stopping.is_fixed:
        known, count = correct.sum() - correct, np.full(len(pool), len(pool) - 1.0)
    else:
        known, count = np.cumsum(correct) - correct, np.arange(len(pool), dtype=float)
    baseline: Floats = (alpha + known) / (alpha + beta + count)
    return baseline


@dataclass(frozen=True)
class PassRateObjective(Objective):
    """Base class of objectives that follow the gradient of a function f of the pass rate p.

    With `baseline="pool"`, A = f′(p)·p(1 − p)·k/k₊ for correct members and −f′(p)·p(1 − p)·k/k₋ for
    incorrect ones: the mean of A·∇log π over the group is f′(p)·∇p in expectation, whatever the
    share of either side; of a group with one side alone, 1 − p (correct) or p times that. A pool of
    equal rewards, or of one side, gets zeros. `estimates` says what stands for p and p(1 − p):
    n₊/N (`plug_in`), which is biased in a pool that stopped because of what it held, or
    `unbiased_estimates` (`unbiased`). With these `Linear` is exact whatever the exit rule, and
    `Log` except for the probability that no response is correct; `Sqrt` and `Arcsine` never are. A
    pool at counts that its stopping cannot reach has plug-in weights.

    With `baseline="belief"`, A_i = f′(p̂)·(r_i − b_i), where r_i is 1 for a correct response and 0
    otherwise, p̂ is the mean of what was believed before the step (`Pool.prior`), and b_i is
    `belief_baseline`. Every response teaches, even in a group of one. Train on all responses of the
    pool: a group chosen by outcome is not covered.

    Raises:
        ValueError: Unknown `estimates` or `baseline`. From `advantages`: `unbiased` for a pool that
            does not know its stopping; `belief` for a pool without a prior.
    """

    looks_at_rewards = False

    estimates: EstimateMethod = "plug_in"
    """Estimate of the pass rate: the pool's share (`plug_in`), or corrected for the rule by which
    sampling stopped (`unbiased`)."""
    baseline: Baseline = "pool"
    """What a response is compared with: all responses drawn (`pool`), or the pass rate that was
    expected before they were drawn (`belief`), so that a single response is enough."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimates == "unbiased" and self.baseline == "belief":
            raise ValueError("estimates='unbiased' works only with baseline='pool'")

    @abstractmethod
    def weight(self, pass_rate: Any, variance: Any) -> Any:
        """f′(p)·p(1 − p) from estimates of p and of p(1 − p), with no division by either."""

    def advantages(self, pool: Pool, group: Group) -> Floats:
        if self.baseline == "belief":
            return self._against_belief(pool)[group.indices]
        found = estimates_of(pool) if self.estimates == "unbiased" else None
        if pool.zero_variance or not (pool.positives and pool.negatives):
            return np.zeros(len(group))
        pass_rate = pool.positives / len(pool)
        weight = float(self.weight(*(found or (pass_rate, pass_rate * (1 - pass_rate)))))
        correct = pool.correct[group.indices]
        sides = np.where(correct, correct.sum(), -(~correct).sum())
        return np.asarray(weight * len(group) / sides)

    @property
    def needs_variance(self) -> bool:  # type: ignore[override]
        return self.baseline == "pool"

    @property
    def uses_priors(self) -> bool:  # type: ignore[override]
        return self.baseline == "belief"

    def slope(self, pass_rate: Any) -> Any:
        """f′(p), for 0 < p < 1, a number or an array."""
        variance = pass_rate * (1 - pass_rate)
        return self.weight(pass_rate, variance) / variance

    def _against_belief(self, pool: Pool) -> Floats:
        """Compare every response of the pool with what was expected of it, shape (N,)."""
        if pool.prior is None:
            raise ValueError(
                f"baseline='belief' needs to know what was believed of prompt {pool.key!r}: pass "
                "priors= to its RolloutSession, or set pool.prior = (alpha, beta)"
            )
        alpha, beta = pool.prior
        surprise = pool.correct - belief_baseline(pool)
        weight = 1.0 if pool.stopping is None else pool.stopping.weight  # all prompts weigh alike
        advantages: Floats = self.slope(alpha / (alpha + beta)) * weight * surprise
        return advantages


@dataclass(frozen=True)
class Linear(PassRateObjective):
    """f(p) = p: the expected reward."""

    def weight(self, pass_rate: Any, variance: Any) -> Any:
        return variance


@dataclass(frozen=True)
class Log(PassRateObjective):
    """f(p) = log p."""

    def weight(self, pass_rate: Any, variance: Any) -> Any:
        return 1 - pass_rate


@dataclass(frozen=True)
class Sqrt(PassRateObjective):
    """f(p) = √p."""

    def weight(self, pass_rate: Any, variance: Any) -> Any:
        return np.sqrt(variance * (1 - pass_rate)) / 2


@dataclass(frozen=True)
class Arcsine(PassRateObjective):
    """f(p) = 2 arcsin √p."""

    def weight(self, pass_rate: Any, variance: Any) -> Any:
        return np.sqrt(variance)


@dataclass(frozen=True)
class Reward(Objective):
    """A_i = r_i: equal rewards teach, too. With groups of correct responses this is RAFT.

    With whole mixed pools it is Reinforce-Rej (arXiv 2504.11343).
    """

    needs_variance = False

    def advantages(self, pool: Pool, group: Group) -> Floats:
        return group.rewards.copy()


OBJECTIVES: dict[str, type[Objective]] = {
    "reference": Reference,
    "grpo": GRPO,
    "linear": Linear,
    "log": Log,
    "sqrt": Sqrt,
    "arcsine": Arcsine,
    "reward": Reward,
}
"""The objectives that settings choose by name."""


def make_objective(objective: str | Objective, **settings: Any) -> Objective:
    """Make an objective by name; an instance is returned as it is.

    Settings at their default may be given to any. Others raise a ValueError if the objective does
    not have them, or with an instance.
    """
    kinds = OBJECTIVES.items()
    having = {n: [other for other, kind in kinds if hasattr(kind, n)] for n in settings}
    given = {n: v for n, v in settings.items() if v != getattr(OBJECTIVES[having[n][0]], n)}
    if isinstance(objective, Objective):
        if given:
            raise ValueError(f"{' and '.join(given)} must be set in the objective, {objective!r}")
        return objective
    one_of("objective", objective, tuple(OBJECTIVES))
    for name, value in given.items():
        if objective not in having[name]:
            raise ValueError(
                f"{name} = {value!r} is for objective {', '.join(having[name])}; objective "
                f"{objective!r} has no such setting"
            )
    return OBJECTIVES[objective](**given)


def advantages(
    pool: Pool,
    group: Group,
    objective: str | Objective = "reference",
    *,
    scale_by_std: bool = False,
    estimates: EstimateMethod = "plug_in",
    baseline: Baseline = "pool",
) -> Floats:
    """Return how much to reinforce each member of `group`, shape (k,).

    Args:
        pool: All responses drawn for a prompt.
        group: Those that are trained on.
        objective: A name in `OBJECTIVES`, or an instance. `reference` compares rewards with the
            mean of the pool, `grpo` with that of the group; `linear`, `log`, `sqrt` and `arcsine`
            follow the gradient of p, log p, √p and 2 arcsin √p; `reward` takes the rewards.
        scale_by_std: For `reference` and `grpo`: divide by the standard deviation.
        estimates: For the functions of p: how p is estimated (`PassRateObjective`).
        baseline: For the functions of p: compare responses with the `pool`, or with the `belief`.

    Raises:
        ValueError: Settings that do not go together, or a pool that the objective cannot use.
    """
    settings = {"scale_by_std": scale_by_std, "estimates": estimates, "baseline": baseline}
    return advantages_by(make_objective(objective, **settings), pool, group)


def advantages_by(objective: Objective, pool: Pool, group: Group) -> Floats:
    """Ask an objective for advantages, shape (k,); a `PluginError` names a wrong answer."""
    given, shape, most = (pool, group), group.rewards.shape, np.finfo(float).max
    wanted = f"an array of finite numbers of shape {shape}"
    limits = -most, most
    values = array_from(objective, "advantages", wanted, given, shape, limits, kinds="iuf")
    return without_rounding(values, group.rewards)


def without_rounding(values: Floats, of: Floats) -> Floats:
    """Return `values`, with 0 in place of those that rounding alone keeps from it.

    Args:
        values: Differences and multiples of `of`, any shape.
        of: What they were computed from; the largest sets how large a rounding error can be.
    """
    unit = np.finfo(np.result_type(values, np.float32)).eps
    negligible = np.abs(values) <= ROUNDING_ERRORS * unit * np.abs(of).max(initial=0.0)
    return np.where(negligible, 0.0, values)
