"""What the data says about prompts before they are drawn, and how it predicts pass rates."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Indices

Floats = NDArray[np.float64]

# The most labels of a column that have their own weight, and the longest vectors accepted.
MOST_LABELS, MOST_DIMENSIONS = 128, 1024
# Directions of a vector that have weights: those of the largest variance, over a sample.
DIRECTIONS, SAMPLED = 32, 4096
# Columns that are labels, whatever is in them.
LABELS = ("source", "subject", "level")
# The column that says how hard a prompt was elsewhere. Its weight starts at ½.
PASS_RATE = "pass_rate"
# The share that a step keeps of the information on the weights from earlier steps.
MEMORY = 0.95
# How far a step moves a weight at most, in logits; and the bounds of τ².
LONGEST_STEP, VARIANCES = 1.0, (0.01, 4.0)
# The information that a scale of 1 counts as, the share kept from earlier steps, and bounds.
SCALE_INFORMATION, SCALE_MEMORY, SCALES = 20.0, 0.98, (0.05, 3.0)


@dataclass
class Column:
    """Numbers φ for each prompt, and the prior of their weights.

    They are the row of `basis` of a prompt's label, or else (vector − centre)·basis.

    Attributes:
        vector: The label of each prompt, shape (total,), or its numbers, shape (total, D).
        kept: What belongs in a state. The basis of vectors does: where directions vary equally
            much, the processor and the release of NumPy decide which rotation of them is found.
    """

    vector: NDArray[Any]
    basis: Floats
    centre: Floats | None = None
    prior_mean: float = 0.0
    prior_variance: float = 1.5
    kept: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many weights it has."""
        return len(self.basis.T)

    def phi(self, indices: Indices) -> Floats:
        """Return φ of some prompts, shape (P, width)."""
        of_prompts = self.vector[indices]
        if self.centre is None:
            return np.asarray(self.basis[of_prompts])
        return np.asarray((of_prompts - self.centre) @ self.basis)

    def dot(self, indices: Indices | slice, weights: Floats) -> Floats:
        """Return φ·w of some prompts, shape (P,)."""
        of_prompts = self.vector[indices]
        if self.centre is None:
            return np.asarray(weights[of_prompts])
        direction = self.basis @ weights
        return np.asarray(of_prompts @ direction - self.centre @ direction)


def labels(values: Sequence[Any]) -> Column:
    """One weight for each label; the rarest share one, and so do missing ones."""
    counts = Counter(values).most_common()
    place = {label: min(i, MOST_LABELS - 1) for i, (label, _) in enumerate(counts)}
    member = np.fromiter((place[value] for value in values), np.int32, len(values))
    return Column(member, np.eye(min(len(counts), MOST_LABELS)))


def numbers(name: str, values: Sequence[Any]) -> Column:
    """One weight for a number, 0 where it is missing.

    Numbers are put on one scale: logits for pass rates, logits of ranks for all others.
    """
    try:
        number = np.array([np.nan if v is None else v for v in values], dtype=float)
    except (TypeError, OverflowError):
        raise ValueError(f"the column {name!r} must hold numbers, texts or vectors") from None
    known = np.isfinite(number)
    if name == PASS_RATE:
        share = number.clip(0.02, 0.98)
        number = np.log(share / (1 - share))
    else:
        _, rank, ties = np.unique(number[known], return_inverse=True, return_counts=True)
        below = np.cumsum(ties) - ties / 2
        share = below[rank] / known.sum()
        number[known] = np.log(share / (1 - share)) * (math.sqrt(3) / math.pi)
    number[known] -= number[known].mean()
    vector = np.where(known, number, 0.0).astype(np.float32)[:, None]
    prior_mean = 0.5 if name == PASS_RATE else 0.0
    return Column(vector, np.ones((1, 1)), np.zeros(1), prior_mean, prior_variance=1.0)


def directions(name: str, values: Sequence[Any]) -> Column:
    """Weights for the directions in which vectors, shape (total, D), differ most."""
    try:
        vectors = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):  # of unequal lengths, or no vectors
        vectors = np.empty(0, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] > MOST_DIMENSIONS or not np.isfinite(vectors).all():
        raise ValueError(
            f"the vectors of {name!r} must be finite and of equal length, at most {MOST_DIMENSIONS}"
        )
    sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLED)], dtype=float)
    centre = sample.mean(axis=0)
    _, sizes, found = np.linalg.svd(sample - centre, full_matrices=False)
    width = min(DIRECTIONS, int((sizes > 1e-6 * np.linalg.norm(sample)).sum()))
    scale = math.sqrt(len(sample) / max(float((sizes[:width] ** 2).sum()), 1e-300))
    # In the memory layout of one that a state brings: products then agree to the bit.
    basis = np.ascontiguousarray(found[:width].T * scale)
    return Column(vectors, basis, centre, kept=("basis", "centre"))


def column_of(name: str, values: Sequence[Any]) -> Column | None:
    """Read a column by its contents: labels, numbers, or vectors; None if all are equal.

    Texts, booleans and integers of few values are labels, and so are the columns in `LABELS`.
    """
    given = [None if value == "" else value for value in values] if _plain(values) else values
    known = [value for value in given if value is not None]
    if not known:
        raise ValueError(f"the column {name!r} is empty")
    if not _plain(known):
        vectors = directions(name, given)
        return vectors if vectors.width else None
    texts = name in LABELS or any(isinstance(value, str | bool) for value in known)
    few = isinstance(known[0], int) and len(set(known)) <= MOST_LABELS // 4
    labelled = texts or (few and name != PASS_RATE)
    column = labels(given) if labelled else numbers(name, given)
    return column if np.ptp(column.vector) > 0 else None


def _plain(values: Sequence[Any]) -> bool:
    """Return whether values are texts and numbers rather than vectors."""
    return not isinstance(values, np.ndarray) and not any(np.ndim(v) for v in values[:64])


class Features:
    """The part w·φ(x) of a logit that the columns of data explain, with w learned in training.

    A Bayesian logistic regression, w ~ N(μ, τ²) with a τ for each column. Each step is one Newton
    step: with slope g and Fisher information I of the log-likelihood by the logit, Λ ← Λ + Σ φφᵀ·I,
    h ← h + Σ φ·(I·φ·w + g), w = (Λ + 1/τ²)⁻¹(h + μ/τ²). Then τ² becomes the column's mean of
    (w − μ)² plus w's variance (EM), so that useless columns vanish. Λ and h are forgotten slowly,
    because the policy learns and columns may mislead. A step costs O(d²·P + d³) for d weights.

    Before that, a factor c on w·φ takes a Newton step for the slope of the surprises on c·w·φ:
    weights say too much while they rest on few visits, and too little once they are shrunk.

    Args:
        columns: Name -> one value for each prompt: labels, numbers, or vectors.

    Attributes:
        columns: The names of those that tell prompts apart, joined by commas.
        predictors: These columns, in order.
        pass_rate: The mean of the column `pass_rate`, ½ without one.
        weights: w, shape (d,); with `information` Λ, (d, d), and `evidence` h, (d,).
        variances: τ² of each column, shape (C,).
        scale: c and the information that it rests on, shape (2,).

    Raises:
        ValueError: A column is empty, of another length than the others, or has bad vectors.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have one value for each prompt, got {lengths}")
        read = {name: column_of(name, values) for name, values in columns.items()}
        self.columns = ",".join(name for name, column in read.items() if column is not None)
        self.predictors = [column for column in read.values() if column is not None]
        self.total = next(iter(lengths.values()), 0)
        given = [float(x) for x in columns.get(PASS_RATE, ()) if isinstance(x, int | float)]
        known = [rate for rate in given if math.isfinite(rate)]
        self.pass_rate = float(np.clip(np.mean(known), 0.02, 0.98)) if known else 0.5
        self._widths = np.array([column.width for column in self.predictors], dtype=int)
        self._mean = np.repeat([column.prior_mean for column in self.predictors], self._widths)
        self.variances = np.array([column.prior_variance for column in self.predictors])
        self.weights = self._mean.astype(float)
        self.information = np.zeros((len(self.weights), len(self.weights)))
        self.evidence = np.zeros(len(self.weights))
        self.scale = np.array([1.0, SCALE_INFORMATION])

    @property
    def kept(self) -> list[str]:
        """The names of what a resumed run needs."""
        columns = enumerate(self.predictors)
        bases = [f"predictors.{i}.{name}" for i, column in columns for name in column.kept]
        learned = ("weights", "information", "evidence", "variances", "scale")
        return ["columns", *bases, *learned]

    def dot(self, indices: Indices | slice) -> Floats | float:
        """Return c·w·φ of some prompts, shape (P,)."""
        found: Floats | float = 0.0
        ends = np.cumsum(self._widths)
        for column, end in zip(self.predictors, ends, strict=True):
            found = found + column.dot(indices, self.weights[end - column.width : end])
        return float(self.scale[0]) * found

    def learn(self, indices: Indices, surprise: Floats, information: Floats) -> None:
        """Move the weights and their scale by g and I of some prompts, shape (P,) each."""
        if not self.predictors:
            return
        self._rescale(self.dot(indices), surprise, information)
        phi_PD = np.concatenate([column.phi(indices) for column in self.predictors], axis=1)
        seen = information * (phi_PD @ self.weights) + surprise
        self.information *= MEMORY
        self.information += phi_PD.T @ (phi_PD * information[:, None])
        self.evidence = MEMORY * self.evidence + phi_PD.T @ seen
        precision = np.repeat(1 / self.variances, self._widths)
        covariance = np.linalg.inv(self.information + np.diag(precision))
        found = covariance @ (self.evidence + precision * self._mean)
        self.weights += np.clip(found - self.weights, -LONGEST_STEP, LONGEST_STEP)
        starts = np.cumsum(self._widths) - self._widths
        squares = (self.weights - self._mean) ** 2 + np.diag(covariance)
        variances = np.add.reduceat(squares, starts) / self._widths
        self.variances = np.clip(variances, *VARIANCES)

    def _rescale(self, said: Floats | float, surprise: Floats, information: Floats) -> None:
        """Move the scale; `said` is what was predicted for some prompts, c·w·φ, shape (P,)."""
        if not information.any():
            return
        said = said - np.average(said, weights=information)
        scale, known = self.scale
        known = SCALE_MEMORY * known + (1 - SCALE_MEMORY) * SCALE_INFORMATION
        known += (information * said**2).sum()
        scale *= np.exp(np.clip((surprise * said).sum() / known, -0.5, 0.5))
        self.scale = np.array([np.clip(scale, *SCALES), known])
