"""How difficulties and the competence move when pass rates come in: CDAS as published, and ours.

A rating is a frozen dataclass of pure functions. P is the number of prompts that were told.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
"""One number for each prompt that was told, shape (P,)."""


def logistic(logits: Any) -> Any:
    """σ(x) = 1/(1 + exp(−x)), for numbers and arrays; it does not overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits)))


class Rating(Protocol):
    """How a competence-difficulty sampler learns and what it aims at."""

    def update(
        self, difficulty: Values, competence: float, visits: Values, pass_rates: Values, tells: int
    ) -> tuple[Values, float]:
        """Return the new difficulties, and what to add to the competence.

        Args:
            difficulty: D of the prompts told, before.
            competence: C, before.
            visits: t, how often each has been told, this time included.
            pass_rates: s of each.
            tells: How often anything has been told, this time included.
        """
        ...

    def centre(self, competence: float) -> float:
        """Return the difficulty that is aimed at."""
        ...

    def expected(self, difficulty: Values, competence: float) -> Values:
        """Return the pass rates that difficulties stand for."""
        ...


@dataclass(frozen=True)
class AverageGap:
    """Difficulty is the average gap between expected and seen pass rate (CDAS, arXiv 2505.17652).

    d = σ(C − D) − s; D ← ((t−1)/t)·D + d/t; C = −mean of D over all prompts. The released code
    divides by t + 1 (`delay` 1), so that its first update is d/2. A `step_floor` above 0 keeps the
    step 1/t from falling below it: older visits are forgotten.

    At rest D = σ(C − D) − s, about ½ − s: D is no logit, and the prompts at D = C have a pass rate
    of about ½ − C, above ½ where the model is weak.

    Attributes:
        total: The number of all prompts.
        delay: Added to t.
        step_floor: The smallest step.
    """

    total: int
    delay: int = 0
    step_floor: float = 0.0

    def update(
        self, difficulty: Values, competence: float, visits: Values, pass_rates: Values, tells: int
    ) -> tuple[Values, float]:
        """D ← D + η·(d − D) with η = max(1/t, floor); C moves by minus the mean change of D."""
        step = np.maximum(1.0 / (visits + self.delay), self.step_floor)
        gap = logistic(competence - difficulty) - pass_rates
        change = step * (gap - difficulty)
        return difficulty + change, -float(change.sum()) / self.total

    def centre(self, competence: float) -> float:
        """D = C."""
        return competence

    def expected(self, difficulty: Values, competence: float) -> Values:
        """Invert the update's resting point: s = σ(C − D) − D, within [0, 1]."""
        expected: Values = np.clip(logistic(competence - difficulty) - difficulty, 0.0, 1.0)
        return expected


@dataclass(frozen=True)
class LogitRating:
    """Difficulty and competence are logits: the expected pass rate is p = σ(C − D) (ours).

    D ← D + η·(p − s) and C ← C + η_C·mean(s − p), as in the rating models that CDAS cites (Elo;
    Rasch's model). η = `step`·max(1/t, `step_floor`), and η_C likewise in the number of tells.
    C − D = logit(target) is the expected pass rate that is aimed at, whatever the model's level.
    D and C are known only up to a common constant.

    Attributes:
        step: The first step of a difficulty, in logits for a pass rate that is off by 1.
        competence_step: The first step of the competence, likewise.
        step_floor: The smallest step, as a share of the first.
        target: The pass rate that is aimed at, within (0, 1).
    """

    step: float
    competence_step: float
    step_floor: float
    target: float

    def update(
        self, difficulty: Values, competence: float, visits: Values, pass_rates: Values, tells: int
    ) -> tuple[Values, float]:
        """Move each D by η·(p − s), and C by η_C times the mean of s − p."""
        error = logistic(competence - difficulty) - pass_rates
        step = self.step * np.maximum(1.0 / visits, self.step_floor)
        competence_step = self.competence_step * max(1.0 / tells, self.step_floor)
        return difficulty + step * error, -competence_step * float(error.mean())

    def centre(self, competence: float) -> float:
        """D = C − logit(target)."""
        return competence - float(np.log(self.target / (1.0 - self.target)))

    def expected(self, difficulty: Values, competence: float) -> Values:
        """P = σ(C − D)."""
        expected: Values = logistic(competence - difficulty)
        return expected
