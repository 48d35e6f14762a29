"""Objectives: from a group to the advantages of its members.

p is a prompt's pass rate. Its pool holds N responses, n₊ correct and n₋ incorrect; its group has k
members, k₊ correct and k₋ incorrect.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.sampling.checks import one_of, setting
from rollwise.sampling.estimators import estimates_of
from rollwise.sampling.pool import Pool
from rollwise.sampling.selection import Group

Floats = NDArray[np.float64]

Baseline = Literal["pool", "belief"]
"""`pool`: what all responses drawn show. `belief`: what was expected before each draw."""

EstimateMethod = Literal["plug_in", "unbiased"]
"""`plug_in`: p by the share of correct responses. `unbiased`: by what allows for the stopping."""

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing by it (TRL's and DeepSeekMath's practice)."""


class Objective(ABC):
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
        """Say how much to reinforce each member of `group`, shape (k,), in its order.

        Args:
            pool: All responses drawn for a prompt.
            group: Those that are trained on.
        """


@dataclass(frozen=True)
class _Centred(Objective):
    """A_i = r_i − mean(r), divided by std(r) + 1e-4 if `scale_by_std`.

    The standard deviation is that of a sample (n − 1 in the denominator). Rewards that are all
    equal give advantages of exactly 0, never a rounding error divided by one.
    """

    scale_by_std: bool = setting(False, "Divide by the standard deviation of the same rewards.")

    def _centre(self, rewards: Floats, compared_with: Pool | Group) -> Floats:
        if compared_with.zero_variance:
            return np.zeros(len(rewards))
        centred: Floats = rewards - compared_with.rewards.mean()
        if self.scale_by_std:
            centred /= compared_with.rewards.std(ddof=1) + STD_EPSILON
        return centred


@dataclass(frozen=True)
class Reference(_Centred):
    """A_i = r_i − mean(r over the pool): Reinforce-Ada's global statistics.

    arXiv 2510.04996, section 3. The mean is that of the rewards themselves, so it suits shaped
    rewards too. The advantages of a group need not sum to 0.
    """

    def advantages(self, pool: Pool, group: Group) -> Floats:
        return self._centre(group.rewards, pool)


@dataclass(frozen=True)
class GRPO(_Centred):
    """A_i = r_i − mean(r over the group): GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1).

    As published it has `scale_by_std`; Dr. GRPO does not.
    """

    def advantages(self, pool: Pool, group: Group) -> Floats:
        return self._centre(group.rewards, group)


def belief_baseline(pool: Pool) -> Floats:
    """Predict each response of a pool from the belief and from the prompt's other draws, (N,).

    α and β are the pool's prior, or 1 and 1. If the number of draws was fixed, all others count:
    b_i = (α + Σ_{j≠i} r_j)/(α + β + N − 1), the leave-one-out mean shrunk to the belief. If
    sampling stopped because of what it had drawn, only the earlier ones do: b_i = (α + Σ_{j<i}
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


@dataclass(frozen=True)
class PassRateObjective(Objective):
    """Base class of objectives that follow the gradient of a function f of the pass rate p.

    With `baseline="pool"`, A = f′(p)·p(1 − p)·k/k₊ for correct members and −f′(p)·p(1 − p)·k/k₋ for
    incorrect ones: the mean of A·∇log π over the group is f′(p)·∇p in expectation, whatever the
    share of either side; of a group with one side alone, 1 − p (correct) or p times that. A pool of
    equal rewards, or of one side, gets zeros.

    `estimates` says what stands for p and p(1 − p). `plug_in` takes n₊/N, which is biased in a pool
    that stopped because of what it held. `unbiased` takes `unbiased_estimates`: `Linear` is then
    exact whatever the exit rule, and `Log` except for the probability that no response is correct;
    `Sqrt` and `Arcsine` are exact under neither. A pool at counts that its stopping cannot reach
    has plug-in weights.

    With `baseline="belief"`, A_i = f′(p̂)·(r_i − b_i), where r_i is 1 for a correct response and 0
    otherwise, p̂ is the mean of what was believed before the step (`Pool.prior`), and b_i is
    `belief_baseline`. Every response teaches, even in a group of one. Train on all responses of the
    pool: a group chosen by outcome is not covered.

    Raises:
        ValueError: Unknown `estimates` or `baseline`. From `advantages`: `unbiased` for a pool that
            does not know its stopping; `belief` for a pool without a prior.
    """

    looks_at_rewards = False

    estimates: EstimateMethod = setting(
        "plug_in",
        "Take the pass rate as the pool shows it (`plug_in`), or allow for why its sampling "
        "stopped (`unbiased`).",
    )
    baseline: Baseline = setting(
        "pool",
        "Compare each response with what all responses drawn show (`pool`), or with what was "
        "believed of the prompt before it was drawn (`belief`), so that even a single response "
        "teaches.",
    )

    def __post_init__(self) -> None:
        one_of("estimates", self.estimates, get_args(EstimateMethod))
        one_of("baseline", self.baseline, get_args(Baseline))
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
        n_correct, n_incorrect = int(correct.sum()), int((~correct).sum())
        of_correct = weight * len(group) / max(n_correct, 1)
        of_incorrect = -weight * len(group) / max(n_incorrect, 1)
        return np.where(correct, of_correct, of_incorrect)

    @property
    def needs_variance(self) -> bool:  # type: ignore[override]
        """Whether the baseline is the pool's."""
        return self.baseline == "pool"

    @property
    def uses_priors(self) -> bool:  # type: ignore[override]
        """Whether the baseline is a belief."""
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
        surprise, share = pool.correct - belief_baseline(pool), 1.0
        if pool.stopping is not None:  # 1 / E[N], relative to the fewest: all prompts weigh alike
            share = float(pool.stopping.fewest / pool.stopping.expected_need[0, 0])
        advantages: Floats = self.slope(alpha / (alpha + beta)) * share * surprise
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
    """A_i = r_i, no baseline.

    With groups of correct responses this is RAFT, with whole mixed pools Reinforce-Rej
    (arXiv 2504.11343). The only built-in objective under which equal rewards teach something.
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
    kinds = OBJECTIVES.values()
    defaults = {name: [getattr(kind, name, None) for kind in kinds] for name in settings}
    given = {name: value for name, value in settings.items() if value not in defaults[name]}
    if isinstance(objective, Objective):
        if given:
            raise ValueError(f"{' and '.join(given)} must be set in the objective, {objective!r}")
        return objective
    one_of("objective", objective, tuple(OBJECTIVES))
    for name, value in given.items():
        having = [other for other, kind in OBJECTIVES.items() if hasattr(kind, name)]
        if objective not in having:
            raise ValueError(
                f"{name} = {value!r} is for objective {', '.join(having)}; objective "
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
    """Say how much to reinforce each member of `group`, shape (k,).

    Args:
        pool: All responses drawn for a prompt.
        group: Those that are trained on.
        objective: A name in `OBJECTIVES`, or an instance. `reference` compares rewards with the
            mean of the pool, `grpo` with that of the group; `linear`, `log`, `sqrt` and `arcsine`
            follow the gradient of p, log p, √p and 2 arcsin √p; `reward` takes the rewards.
        scale_by_std: For `reference` and `grpo`: divide by the standard deviation.
        estimates: For the functions of p: how p is estimated.
        baseline: For the functions of p: compare each response with what the `pool` shows, or with
            the `belief` that was held before it was drawn.

    Raises:
        ValueError: Settings that do not go together (`make_objective`), or `unbiased` for a pool
            that cannot be estimated from (`PassRateObjective`).
    """
    settings = {"scale_by_std": scale_by_std, "estimates": estimates, "baseline": baseline}
    return advantages_by(make_objective(objective, **settings), pool, group)


def advantages_by(objective: Objective, pool: Pool, group: Group) -> Floats:
    """Ask an objective for advantages, shape (k,); a `PluginError` names a wrong answer."""
    values: Any = objective.advantages(pool, group)
    shape = group.rewards.shape
    fits = type(values) is np.ndarray and values.shape == shape and values.dtype.kind in "fiu"
    if not fits or not np.isfinite(values).all():
        wanted = f"a NumPy array of finite numbers of shape {shape}"
        raise wrong_result(objective, "advantages", wanted, values)
    return values  # type: ignore[no-any-return]
