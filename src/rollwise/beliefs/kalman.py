"""A filter on each pass rate's logit, with a drift that all prompts share."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief, beta_of
from rollwise.beliefs.features import Features
from rollwise.beliefs.ratings import logistic
from rollwise.beliefs.state import Indices
from rollwise.sampling.checks import Inner, NonNegative, Positive, Share

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
# Bounds of the pass rate at which the level begins, if it is measured.
EXTREMES = 0.02, 0.98
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

    identity: ClassVar[tuple[str, ...]] = ("features.columns",)

    features: Features = field(default_factory=lambda: Features({}), repr=False)
    initial_pass_rate: Inner | None = None
    """Pass rate expected before any is seen; default: that of the evaluation before training, or
    else the mean of the column `pass_rate`, or else 0.5."""
    initial_variance: Positive = 1.5
    """Variance of the logits over the set expected before any is seen."""
    noise: NonNegative = 0.01
    """Variance added to each logit at each step."""
    drift_gain: Share = 0.3
    """Share of the drift seen in a step that is applied to all prompts (0: no drift)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features.total not in (0, self.total):  # 0: nothing is known
            raise ValueError(f"features must cover {self.total} prompts, got {self.features.total}")
        self._steps = 0
        self._level = self._drift = 0.0
        self._scale, self._information = 1.0, SPREAD_INFORMATION
        # Offsets and variances are kept in units of the scale, so that it moves all of them.
        self._offset = np.full(self.total, 0, dtype=np.float32)
        self._variance = np.full(self.total, self.initial_variance, dtype=np.float32)
        self._visited_at = np.full(self.total, -1, dtype=np.int32)
        self._begin_at(self.initial_pass_rate or self.features.pass_rate)

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        """What makes up its state, that of the features included."""
        of_prompts = ("_offset", "_variance", "_visited_at")
        of_all = ("_level", "_drift", "_scale", "_information", "_steps")
        return (*of_prompts, *of_all, *(f"features.{name}" for name in self.features.kept))

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

    def start_at(self, pass_rate: float) -> None:
        """Set the level so that this is the mean over the set, unless `initial_pass_rate` is."""
        if self.initial_pass_rate is None:
            self._begin_at(float(np.clip(pass_rate, *EXTREMES)))

    def _begin_at(self, pass_rate: float) -> None:
        for _ in range(NEWTON_STEPS if self.features.columns else 1):  # where one step is exact
            found = float(self.believe(slice(None))[0].mean())
            self._level += spread(self.variance) * (logit(pass_rate) - logit(found))

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
        surprise, slope = score(mean / width, correct, drawn)
        self._scale_by(surprise, slope, (mean - self._centre(indices)) / width)
        self._move_level(float(surprise.sum()), float((slope / width).sum()))
        if self.features.columns:
            surprise, slope = score((mean + self._drift) / width, correct, drawn)
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


def logit(pass_rate: float) -> float:
    """Return log(p/(1 − p))."""
    return math.log(pass_rate / (1.0 - pass_rate))


def spread(variance: Any) -> Any:
    """Return √(1 + πv/8), by which the variance of a logit draws its pass rate towards ½."""
    return np.sqrt(1.0 + np.pi * variance / 8.0)


def score(logit: Floats, correct: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    """Return k − n·p, the slope of the log-likelihood by the logit, and n·p(1 − p); (P,) each."""
    pass_rate = logistic(logit)
    return correct - drawn * pass_rate, drawn * pass_rate * (1.0 - pass_rate)


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
        slope, information = score(logit, correct, drawn)
        step = (slope - (logit - mean) / variance) / (information + 1.0 / variance)
        logit += np.clip(step, -LONGEST_STEP, LONGEST_STEP)
    return logit, 1.0 / (score(logit, correct, drawn)[1] + 1.0 / variance)
