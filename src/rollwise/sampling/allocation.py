"""Allocations: how many responses each prompt gets, fixed in advance from its expected pass rate.

P is the number of prompts. Pools of fixed counts are ordinary samples: their pass rates are
unbiased, unlike those of pools that stop because of what they hold.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.checks import at_least, finite_above_zero, finite_at_least, setting

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SMALLEST_SHARE = 1e-100
"""Weights below this fraction of the largest count as this, so that no scale overflows."""


class Allocation(ABC):
    """Base class of allocations; one of your own defines `counts` and is a frozen dataclass.

    With a `pilot`, pass rates are measured by that many draws of each prompt, discarded after
    counting; without one, they are those that the prompt sampler expects.

    Attributes:
        objective: The name of the objective that settings take with it; "" for the default.
    """

    objective: ClassVar[str] = ""

    mean_draws: float
    minimum: int
    maximum: int
    pilot: int = 0

    @abstractmethod
    def counts(self, pass_rates: ArrayLike) -> Counts:
        """Return the responses of each prompt, shape (P,), from pass rates (NaN where unknown)."""


@dataclass(frozen=True)
class Estimated(Allocation):
    """Hard prompts get more, in proportion to 1/√(p̂ + ε) (Reinforce-Ada-Est, arXiv 2510.04996 v3).

    One round, from the pass rates that are expected before it. Limits that exclude each other or
    the mean raise a ValueError.
    """

    objective: ClassVar[str] = "sqrt"

    mean_draws: float = setting(8.0, "Draw this many responses per prompt on average.")
    minimum: int = setting(2, "Draw at least this many per prompt.")
    maximum: int = setting(32, "Draw at most this many per prompt.")
    epsilon: float = setting(
        0.01, "Add this to pass rates (ε): the less, the more draws the hardest prompts get."
    )

    def __post_init__(self) -> None:
        at_least("minimum", self.minimum, 1)
        _check_limits(self)
        finite_above_zero("epsilon", self.epsilon)

    def counts(self, pass_rates: ArrayLike) -> Counts:
        """Return N_x of each prompt, shape (P,); their sum is the integer nearest to mean · P.

        Args:
            pass_rates: p̂_x, shape (P,); NaN, nothing known, counts as ½.

        Raises:
            ValueError: Pass rates of another shape, or outside [0, 1].
        """
        weights_P = 1.0 / np.sqrt(_checked_rates(pass_rates) + self.epsilon)
        return _share_out(weights_P, self)


@dataclass(frozen=True)
class GVM(Allocation):
    """Least variance of the gradient: N_x ∝ G_x/√(p_x + α/p_x^(β−1)) (GVM, arXiv 2505.02391).

    p_x and the gradient norm G_x come from `pilot` draws of each prompt, which the caller makes and
    discards: a pool that kept them would be biased towards their results. A prompt with p_x = 0 or
    G_x = 0 gets none. Of the others the harder ones get more, down to p_x = √α (with β = 2); below
    that, α reduces it again. The published method has no limits.
    """

    mean_draws: float = setting(8.0, "Draw this many per prompt on average, besides the pilot.")
    pilot: int = setting(8, "Draw a pilot of this many per prompt, discarded after counting.")
    alpha: float = setting(1e-3, "Hold back draws at tiny pass rates (α).")
    beta: float = setting(2.0, "Sharpen where α holds back (β).")
    minimum: int = setting(0, "Draw at least this many for a prompt that gets any share.")
    maximum: int = setting(32, "Draw at most this many per prompt.")

    def __post_init__(self) -> None:
        at_least("pilot", self.pilot, 1)
        at_least("minimum", self.minimum, 0)
        _check_limits(self)
        finite_at_least("alpha", self.alpha, 0)
        finite_at_least("beta", self.beta, 1)

    def counts(self, pass_rates: ArrayLike, gradient_norms: ArrayLike | None = None) -> Counts:
        """Return N_x of each prompt, (P,), from p_x and G_x (by default 1), shape (P,) each.

        Their sum is the integer nearest to mean · P, or less if `maximum` for each prompt that has
        a share comes to less.

        Raises:
            ValueError: Arrays of another shape, or outside their ranges.
        """
        rates_P = _checked_rates(pass_rates)
        norms_P = np.ones_like(rates_P) if gradient_norms is None else np.asarray(gradient_norms)
        if norms_P.shape != rates_P.shape or not np.all((norms_P >= 0) & (norms_P < np.inf)):
            raise ValueError(
                f"gradient_norms must be finite, from 0, one per pass rate, got {gradient_norms!r}"
            )
        solved_P = rates_P > 0
        p = rates_P[solved_P]
        weights_P = np.zeros_like(rates_P)
        with np.errstate(divide="ignore", over="ignore"):  # of a tiny p, which then gets none
            penalised = p + self.alpha / p ** (self.beta - 1)
        weights_P[solved_P] = norms_P[solved_P] / np.sqrt(penalised)
        return _share_out(weights_P, self)


ALLOCATIONS: dict[str, type[Allocation]] = {"estimated": Estimated, "gvm": GVM}
"""The allocations that settings choose by name."""


def _check_limits(limits: Allocation) -> None:
    at_least("maximum", limits.maximum, max(limits.minimum, 1))
    if not limits.minimum <= limits.mean_draws <= limits.maximum:
        raise ValueError(
            f"mean_draws must lie between minimum ({limits.minimum}) and maximum "
            f"({limits.maximum}), got {limits.mean_draws}"
        )


def _checked_rates(pass_rates: ArrayLike) -> Floats:
    """Return pass rates as an array, ½ for NaN."""
    rates_P = np.array(pass_rates, dtype=float)
    rates_P[np.isnan(rates_P)] = 0.5
    if rates_P.ndim != 1 or np.any((rates_P < 0) | (rates_P > 1)):
        raise ValueError(f"pass_rates must lie between 0 and 1, shape (P,), got {pass_rates!r}")
    return rates_P


def _share_out(weights_P: Floats, limits: Allocation) -> Counts:
    """Share out the mean number of draws in proportion to weights; a weight of 0 gets none.

    The others get clip(c · w, minimum, maximum), with c such that the sum is right, or as near as
    the limits allow; then whole numbers, by the largest remainders.
    """
    counts_P = np.zeros(len(weights_P), dtype=np.int64)
    some_P = weights_P > 0
    sharing = int(np.count_nonzero(some_P))
    if not sharing:
        return counts_P
    least, most = limits.minimum, limits.maximum
    total = min(max(round(limits.mean_draws * len(weights_P)), least * sharing), most * sharing)
    shares = np.maximum(weights_P[some_P] / weights_P.max(), SMALLEST_SHARE)
    quotas = _quotas(shares, total, least, most)
    whole = np.floor(quotas).astype(np.int64)
    up = np.argsort(whole - quotas, kind="stable")[: total - int(whole.sum())]
    whole[up] += 1
    counts_P[some_P] = whole
    return counts_P


def _quotas(weights: Floats, total: int, minimum: int, maximum: int) -> Floats:
    """Return clip(c · w, minimum, maximum) for the c at which they sum to `total`, exactly.

    The sum is piecewise linear in c: find the two corners next to `total`, and c between them.
    """

    def total_at(scale: float) -> float:
        return float(np.clip(scale * weights, minimum, maximum).sum())

    corners = np.unique(np.concatenate([minimum / weights, maximum / weights]))
    right = min(bisect_left(corners, float(total), key=total_at), len(corners) - 1)
    around = corners[max(right - 1, 0) : right + 1]
    scale = float(np.interp(total, [total_at(c) for c in around], around))
    return np.clip(scale * weights, minimum, maximum)
