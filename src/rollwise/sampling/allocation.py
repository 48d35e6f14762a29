"""Allocations: how many responses each prompt gets, fixed in advance from its expected pass rate.

P is the number of prompts. Pools of fixed counts are ordinary samples: their pass rates are
unbiased, unlike those of pools that stop because of what they hold.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.checks import Checked, Count, NonNegative, Positive, Whole, at_least

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Allocation(Checked, ABC):
    """Base class of allocations; one of your own defines `counts` and is a frozen dataclass.

    Attributes:
        objective: The name of the objective that settings take with it; "" for the default.
        mean_draws: Mean responses per prompt, between `minimum` and `maximum`.
        pilot: Draws of each prompt that measure its pass rate, and are discarded after counting.
            With 0, pass rates are those that the prompt sampler expects.

    Raises:
        ValueError: Limits that exclude each other or the mean, or a setting out of its range.
    """

    objective: ClassVar[str] = ""

    mean_draws: float
    minimum: int
    maximum: int
    pilot: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("maximum", self.maximum, max(self.minimum, 1))
        if not self.minimum <= self.mean_draws <= self.maximum:
            raise ValueError(
                f"mean_draws must lie between minimum ({self.minimum}) and maximum "
                f"({self.maximum}), got {self.mean_draws}"
            )

    @abstractmethod
    def counts(self, pass_rates: ArrayLike) -> Counts:
        """Return N_x, the responses of each prompt, shape (P,).

        Their sum is the integer nearest to mean · P, or what the limits allow. `pass_rates` are
        p̂_x, shape (P,); NaN, nothing known, counts as ½. Others outside [0, 1] are a ValueError.
        """


@dataclass(frozen=True)
class Estimated(Allocation):
    """Hard prompts get more: N_x ∝ 1/√(p̂ + ε) (Reinforce-Ada-Est, arXiv 2510.04996 v3)."""

    objective: ClassVar[str] = "sqrt"

    mean_draws: float = 8.0
    """Mean responses per prompt."""
    minimum: Count = 2
    """Fewest responses per prompt."""
    maximum: int = 32
    """Most responses per prompt."""
    epsilon: Positive = 0.01
    """Added to pass rates (ε); the smaller, the more draws the hardest prompts get."""

    def counts(self, pass_rates: ArrayLike) -> Counts:
        return _share_out(1.0 / np.sqrt(_checked_rates(pass_rates) + self.epsilon), self)


@dataclass(frozen=True)
class GVM(Allocation):
    """Least variance of the gradient: N_x ∝ G_x/√(p_x + α/p_x^(β−1)) (GVM, arXiv 2505.02391).

    p_x and the gradient norm G_x come from `pilot` draws of each prompt, which the caller makes and
    discards: a pool that kept them would be biased towards their results. A prompt with p_x = 0 or
    G_x = 0 gets none; of the others, those with p_x near √α get most (β = 2). The published method
    has no limits.
    """

    mean_draws: float = 8.0
    """Mean responses per prompt, in addition to the pilot."""
    pilot: Count = 8
    """Responses per prompt in the pilot, which are only counted."""
    alpha: NonNegative = 1e-3
    """How strongly draws are held back at tiny pass rates (α)."""
    beta: Annotated[float, Ge(1), Lt(np.inf)] = 2.0
    """How sharply α sets in (β)."""
    minimum: Whole = 0
    """Fewest responses for a prompt that gets any."""
    maximum: int = 32
    """Most responses per prompt."""

    def counts(self, pass_rates: ArrayLike, gradient_norms: ArrayLike | None = None) -> Counts:
        """Return N_x; `gradient_norms`, G_x, have the shape (P,), and are 1 by default."""
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


def _checked_rates(pass_rates: ArrayLike) -> Floats:
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
    relative = np.maximum(weights_P[some_P] / weights_P.max(), 1e-100)  # so that no scale overflows
    quotas = _quotas(relative, total, least, most)
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
