"""A filter on each pass rate's logit, with a drift that all prompts share."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief, beta_of
from rollwise.beliefs.features import Features
from rollwise.beliefs.ratings import logistic
from rollwise.beliefs.state import Indices
from rollwise.sampling.checks import finite_above_zero, finite_at_least, setting, share

Floats = NDArray[np.float64]

# Newton steps from the prior mean to the mode, and the longest one, in logits, so that the mode is
# found from far away too.
NEWTON_STEPS, LONGEST_STEP = 8, 2.0
# The quadrature for a posterior's mean and variance.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
# The information that `initial_variance` counts as, and the share of learned information kept.
SPREAD_INFORMATION, SPREAD_MEMORY = 50.0, 0.99
# Bounds of the standard deviation of the set's logits, in units of the initial one.
SCALES = 0.2, 5.0
# The logit beyond which expected pass rates are not distinguished, and the level does not move.
FURTHEST = 15.0


@dataclass(eq=False, kw_only=True)
class LogitKalman(Belief):
    """Tracks the logit of each pass rate as the policy learns: its mean and its variance.

    A logit is z = L + w·φ + x: the level L of the whole set, what features φ of the prompt say
    (`Features`), and the prompt's own offset x ~ N(0, V). Use it where prompts are drawn once or a
    few times a step, so that one visit says little. It takes 12 bytes a prompt.

    **Offsets.** A visit with k correct of n responses is an observation k ~ Binomial(n, σ(z)); mean
    and variance of the posterior are computed by quadrature (`posterior`). At each step an offset
    gains variance `noise` and is drawn back to 0 so that V stays the variance over the set (an
    Ornstein-Uhlenbeck process): a steps after its last visit, mean m and variance v have become
    f·m and f²·v + (1 − f²)·V, with f² = exp(−a·`noise`/V).

    **Level.** The policy learns, and prompts that were not visited move with the rest. With p̂
    believed before a step, d = Σ(k − n·p̂)/Σ n·∂p̂/∂L is the shift of L that explains the step's
    surprises, and L moves by max(`drift_gain`, 1/t)·d at step t.

    **Variance.** V is learned from the same surprises: where they grow with the offsets, all
    offsets are scaled up together, and down where they fall, by Newton steps for the slope of k on
    the offsets.

    `believe` returns the predictive mean E σ(z) ≈ σ(m/√(1 + πv/8)) (MacKay 1992, "The evidence
    framework applied to classification networks", equation 10) and the strength 1/(v·p(1 − p)) with
    p = σ(m), that of the Beta distribution whose Laplace approximation in logits is N(m, v).

    Args:
        total: The number of prompts.
        features: What is known of each prompt before it is drawn; by default nothing.

    Raises:
        ValueError: A setting out of its range, or features for a different number of prompts.
    """

    kept: ClassVar[tuple[str, ...]] = (
        "_offset",
        "_variance",
        "_visited_at",
        "_level",
        "_drift",
        "_scale",
        "_information",
        "_steps",
        "features",
    )

    features: Features = field(default_factory=lambda: Features({}), repr=False)
    initial_pass_rate: float = setting(0.5, "Expect this pass rate before any is seen.")
    initial_variance: float = setting(
        1.5, "Expect logits of this variance over the set, before any is seen."
    )
    noise: float = setting(0.01, "Add this variance to each logit at each step.")
    drift_gain: float = setting(
        0.3, "Believe this share of the drift seen in a step (0: no drift)."
    )

    def __post_init__(self) -> None:
        if not 0 < self.initial_pass_rate < 1:
            raise ValueError(
                f"initial_pass_rate must lie within (0, 1), got {self.initial_pass_rate}"
            )
        finite_above_zero("initial_variance", self.initial_variance)
        finite_at_least("noise", self.noise, 0)
        share("drift_gain", self.drift_gain)
        self._steps = 0
        self._level = float(np.log(self.initial_pass_rate / (1 - self.initial_pass_rate)))
        self._drift = 0.0
        self._scale, self._information = 1.0, SPREAD_INFORMATION
        # Offsets and variances are kept in units of the scale, so that it moves all of them.
        # Filled, not reserved by np.zeros, which would make the first visits wait for memory.
        self._offset = np.full(self.total, 0, dtype=np.float32)
        self._variance = np.full(self.total, self.initial_variance, dtype=np.float32)
        self._visited_at = np.full(self.total, -1, dtype=np.int32)
        if self.features.total not in (0, self.total):  # 0: nothing is known
            raise ValueError(f"features must cover {self.total} prompts, got {self.features.total}")

    @property
    def variance(self) -> float:
        """V, the variance of the logits over the set."""
        return self._scale**2 * self.initial_variance

    def believe(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        mean, variance = self.logits(indices)
        mean = np.clip(mean, -FURTHEST, FURTHEST)
        mode = logistic(mean)
        return logistic(mean / spread(variance)), 1.0 / (variance * mode * (1.0 - mode))

    def priors(self, indices: Indices | slice) -> Floats:
        return beta_of(*self.believe(indices))

    def logits(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        """Return mean and variance of the logits now, shape (P,) each."""
        age = self._steps - np.maximum(self._visited_at[indices], 0)
        kept = np.exp(-age * self.noise / self.variance)
        offset = self._scale * self._offset[indices].astype(float)
        variance = self._scale**2 * self._variance[indices].astype(float)
        mean = self._centre(indices) + np.sqrt(kept) * offset
        return mean, kept * variance + (1.0 - kept) * self.variance

    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        correct_P, drawn_P = np.asarray(correct, float), np.asarray(drawn, float)
        self._steps += 1
        self._learn_of_all(indices, correct_P, drawn_P)
        mean, variance = posterior(*self.logits(indices), correct_P, drawn_P)
        self._offset[indices] = (mean - self._centre(indices)) / self._scale
        self._variance[indices] = variance / self._scale**2
        self._visited_at[indices] = self._steps

    def _centre(self, indices: Indices | slice) -> Floats | float:
        return self._level + self.features.dot(indices)

    def _learn_of_all(self, indices: Indices, correct: Floats, drawn: Floats) -> None:
        """Learn the level and the scale, which all prompts share, from a step's surprises."""
        mean, variance = self.logits(indices)
        width = spread(variance)
        believed = logistic(mean / width)
        surprise, slope = correct - drawn * believed, drawn * believed * (1.0 - believed)
        self._scale_by(surprise, slope, (mean - self._centre(indices)) / width)
        self._move_level(float(surprise.sum()), float((slope / width).sum()))
        if self.features.columns:
            believed = logistic((mean + self._drift) / width)
            surprise, slope = correct - drawn * believed, drawn * believed * (1.0 - believed)
            self.features.learn(indices, surprise / width, slope / width**2)

    def _move_level(self, surprise: float, slope: float) -> None:
        """Take a smoothed Newton step towards the level that explains the surprises."""
        gain = max(self.drift_gain, 1.0 / self._steps) if self.drift_gain else 0.0
        step = gain * surprise / slope if slope else 0.0
        self._drift = float(np.clip(step, -LONGEST_STEP, LONGEST_STEP))
        self._level = float(np.clip(self._level + self._drift, -FURTHEST, FURTHEST))

    def _scale_by(self, surprise: Floats, slope: Floats, offset: Floats) -> None:
        """Take a Newton step of the scale's logarithm; `offset` is what it stretches."""
        seen = SPREAD_MEMORY * self._information + (1.0 - SPREAD_MEMORY) * SPREAD_INFORMATION
        self._information = seen + float((slope * offset**2).sum())
        step = float((surprise * offset).sum()) / self._information
        scale = self._scale * np.exp(np.clip(step, -0.5, 0.5))
        self._scale = float(np.clip(scale, *SCALES))

    def metrics(self) -> dict[str, float]:
        """Return the latest step's drift and the standard deviation over the set, in logits."""
        return {"belief_drift": self._drift, "belief_spread": self.variance**0.5}


def spread(variance: Any) -> Any:
    """Return √(1 + πv/8), by which the variance of a logit draws its pass rate towards ½."""
    return np.sqrt(1.0 + np.pi * variance / 8.0)


def posterior(
    mean: Floats, variance: Floats, correct: Floats, drawn: Floats
) -> tuple[Floats, Floats]:
    """Return mean and variance of logits z ~ N(mean, variance) after k correct of n responses.

    By adaptive Gauss-Hermite quadrature (Naylor and Smith 1982): nodes around the mode, spaced by
    the curvature there. All arrays have the shape (P,).
    """
    mode, curvature = laplace_step(mean, variance, correct, drawn)
    logit_PN = mode[:, None] + np.sqrt(curvature)[:, None] * NODES
    likelihood_PN = correct[:, None] * logit_PN - drawn[:, None] * np.logaddexp(0.0, logit_PN)
    prior_PN = -((logit_PN - mean[:, None]) ** 2) / (2.0 * variance[:, None])
    density_PN = likelihood_PN + prior_PN + NODES**2 / 2.0  # divided by that of the nodes
    weight_PN = WEIGHTS * np.exp(density_PN - density_PN.max(axis=1, keepdims=True))
    weight_PN /= weight_PN.sum(axis=1, keepdims=True)
    centre_P = (weight_PN * logit_PN).sum(axis=1)
    return centre_P, (weight_PN * (logit_PN - centre_P[:, None]) ** 2).sum(axis=1)


def laplace_step(
    mean: Floats, variance: Floats, correct: Floats, drawn: Floats
) -> tuple[Floats, Floats]:
    """Return mode and inverse curvature of the posterior that `posterior` integrates, shape (P,).

    Maximizes k·z − n·log(1 + eᶻ) − (z − m)²/(2v), which is concave, by Newton steps.
    """
    logit = mean.copy()
    for _ in range(NEWTON_STEPS):
        pass_rate = logistic(logit)
        slope = correct - drawn * pass_rate - (logit - mean) / variance
        step = slope / (drawn * pass_rate * (1.0 - pass_rate) + 1.0 / variance)
        logit += np.clip(step, -LONGEST_STEP, LONGEST_STEP)
    pass_rate = logistic(logit)
    return logit, 1.0 / (drawn * pass_rate * (1.0 - pass_rate) + 1.0 / variance)
