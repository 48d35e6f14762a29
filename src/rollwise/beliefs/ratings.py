"""Difficulties of prompts and a competence of the model, as CDAS rates them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import EXPECTATION_WEIGHT, Belief
from rollwise.beliefs.state import Indices

Floats = NDArray[np.float64]

Form = Literal["paper", "released_code", "calibrated"]

STEP, COMPETENCE_STEP, FLOOR = 4.0, 2.0, 0.1
"""The calibrated form's first steps of D and of C, in logits, and the least share of them."""


def logistic(logits: Any) -> Any:
    """σ(x) = 1/(1 + exp(−x)), for numbers and arrays; it does not overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits)))


@dataclass(eq=False, kw_only=True)
class Ratings(Belief):
    """A difficulty D of each prompt and a competence C of the model (CDAS, arXiv 2505.17652).

    All start at 0. With s the pass rate of a prompt at its t-th visit and e = σ(C − D) − s:

    * `paper`: D ← D + (e − D)/t, and C = −mean of D over all prompts. `released_code` divides by
      t + 1, so that its first update is e/2. At rest D = e, about ½ − s: D is no logit, and the
      prompts at D = C have a pass rate of about ½ − C, above ½ where the model is weak.
    * `calibrated` (ours): D ← D + 4·max(1/t, 0.1)·e, and C ← C − 2·max(1/n, 0.1)·mean(e) at the
      n-th call of `learn`, as in the rating models that CDAS cites (Elo; Rasch's model). At
      C − D = logit(p) the expected pass rate is p, whatever the model's level.

    Learn a whole step at once: C moves once for each call. An unknown form raises a ValueError.

    Attributes:
        difficulty: D of each prompt, shape (total,).
        competence: C.
    """

    kept: ClassVar[tuple[str, ...]] = ("form", "difficulty", "_visits", "competence", "_tells")
    identity: ClassVar[tuple[str, ...]] = ("form",)

    form: Form = "paper"
    """How difficulty is updated: as published (`paper`), with half its first step
    (`released_code`), or in logits (`calibrated`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._calibrated = self.form == "calibrated"
        self.difficulty: Floats = np.full(self.total, 0.0)
        self.competence = 0.0
        self._visits = np.full(self.total, 0, dtype=np.uint32)
        self._tells = 0

    def believe(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        """Return the pass rates that the difficulties imply.

        In the published forms that is the rate that would leave D unchanged, s = σ(C − D) − D,
        accurate once D has converged. An unvisited prompt has the rate of the model's level, with
        strength 0.
        """
        difficulty = self.difficulty[indices]
        mean = logistic(self.competence - difficulty)
        if not self._calibrated:
            mean = np.clip(mean - difficulty, 0.0, 1.0)
        return mean, np.where(self._visits[indices] > 0, EXPECTATION_WEIGHT, 0.0)

    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        self._tells += 1
        self._visits[indices] += np.uint32(1)
        difficulty, visits = self.difficulty[indices], self._visits[indices].astype(float)
        error = logistic(self.competence - difficulty) - correct / drawn
        if self._calibrated:
            self.difficulty[indices] = difficulty + STEP * np.maximum(1.0 / visits, FLOOR) * error
            step = COMPETENCE_STEP * max(1.0 / self._tells, FLOOR)
            self.competence -= step * float(error.mean())
        else:
            delay = int(self.form == "released_code")
            change = 1.0 / (visits + delay) * (error - difficulty)
            self.difficulty[indices] = difficulty + change
            self.competence -= float(change.sum()) / self.total

    def aim(self, target: float) -> float:
        """Return the D to aim at: C − logit(target), or C in the published forms."""
        offset = float(np.log(target / (1.0 - target))) if self._calibrated else 0.0
        return self.competence - offset

    def metrics(self) -> dict[str, float]:
        """Return the competence, quantiles of the difficulty, and the share seen."""
        low, middle, high = np.quantile(self.difficulty, (0.1, 0.5, 0.9)).tolist()
        return {
            "competence": self.competence,
            "difficulty_p10": low,
            "difficulty_p50": middle,
            "difficulty_p90": high,
            "visited": float(np.count_nonzero(self._visits)) / self.total,
        }
