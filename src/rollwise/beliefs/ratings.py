"""Difficulties of prompts and a competence of the model, as CDAS rates them.

A rule of rating is a frozen dataclass of pure functions. P is the number of prompts told.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import EXPECTATION_WEIGHT, Belief
from rollwise.beliefs.state import Places, State, from_state
from rollwise.sampling.checks import finite_above_zero, one_of, setting, share

Form = Literal["paper", "released_code", "calibrated"]
"""`paper`: difficulty is an average of gaps, as published. `released_code`: the same with a first
step of ½, as its authors run it. `calibrated`: difficulty and competence are logits (ours)."""

_FLOORS: dict[Form, float] = {"paper": 0.0, "released_code": 0.0, "calibrated": 0.1}
_SAMPLED = 1 << 16

Values = NDArray[np.float64]
"""One number for each prompt learned from, shape (P,)."""


def logistic(logits: Any) -> Any:
    """σ(x) = 1/(1 + exp(−x)), for numbers and arrays; it does not overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits)))


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
        """D ← D + η·(d − D) with η = max(1/t, floor); C moves by minus the mean change of D.

        Args:
            difficulty: D of the prompts told, before.
            competence: C, before.
            visits: t, how often each has been told, this time included.
            pass_rates: s of each.
            tells: How often anything has been told, this time included.

        Returns:
            The new difficulties, and what to add to the competence.
        """
        step = np.maximum(1.0 / (visits + self.delay), self.step_floor)
        gap = logistic(competence - difficulty) - pass_rates
        change = step * (gap - difficulty)
        return difficulty + change, -float(change.sum()) / self.total

    def centre(self, competence: float, target: float) -> float:
        """D = C, as published, whatever the target."""
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
    At C − D = logit(t) the expected pass rate is t, whatever the model's level.
    D and C are known only up to a common constant.

    Attributes:
        step: The first step of a difficulty, in logits for a pass rate that is off by 1.
        competence_step: The first step of the competence, likewise.
        step_floor: The smallest step, as a share of the first.
    """

    step: float
    competence_step: float
    step_floor: float

    def update(
        self, difficulty: Values, competence: float, visits: Values, pass_rates: Values, tells: int
    ) -> tuple[Values, float]:
        """Move each D by η·(p − s), and C by η_C times the mean of s − p."""
        error = logistic(competence - difficulty) - pass_rates
        step = self.step * np.maximum(1.0 / visits, self.step_floor)
        competence_step = self.competence_step * max(1.0 / tells, self.step_floor)
        return difficulty + step * error, -competence_step * float(error.mean())

    def centre(self, competence: float, target: float) -> float:
        """D = C − logit(target)."""
        return competence - float(np.log(target / (1.0 - target)))

    def expected(self, difficulty: Values, competence: float) -> Values:
        """P = σ(C − D)."""
        expected: Values = logistic(competence - difficulty)
        return expected


RatingRule = AverageGap | LogitRating
"""How difficulties and the competence move when pass rates come in."""


@dataclass(eq=False, kw_only=True)
class RatingSettings:
    """The settings of `Ratings`, which `CDAS` takes too."""

    form: Form = setting(
        "paper",
        "`paper`: as published; `released_code`: with half its first step; "
        "`calibrated`: in logits.",
    )
    step: float = setting(4.0, "Calibrated form: first step of a difficulty, in logits.")
    competence_step: float = setting(
        2.0, "Calibrated form: first step of the competence, in logits."
    )
    step_floor: float | None = setting(
        None,
        "What the step 1/t never falls below; 0 never forgets. By default 0 in the "
        "published forms and 0.1 in the calibrated one.",
    )

    def ratings(self, total: int) -> "Ratings":
        """Make ratings of `total` prompts with these settings."""
        settings = {each.name: getattr(self, each.name) for each in fields(RatingSettings)}
        return Ratings(total, **settings)


@dataclass(eq=False)
class Ratings(RatingSettings, Belief):
    """A difficulty D of each prompt and a competence C of the model (CDAS, arXiv 2505.17652).

    All start at 0 and move with the pass rates that are learned, by `AverageGap` (as published) or
    `LogitRating` (`form="calibrated"`). Learn a whole step at once: C moves once for each call.

    Raises:
        ValueError: A setting out of its range.
    """

    kept: ClassVar[tuple[str, ...]] = ("form", "_difficulty", "_visits", "_competence", "_tells")

    def __post_init__(self) -> None:
        one_of("form", self.form, get_args(Form))
        finite_above_zero("step", self.step)
        finite_above_zero("competence_step", self.competence_step)
        share("step_floor", self.step_floor or 0.0)
        self._rule = self._make_rule()
        # Filled, not reserved by np.zeros: else the first visits wait for the memory to be given.
        self._difficulty = np.full(self.total, 0.0)
        self._visits = np.full(self.total, 0, dtype=np.uint32)
        self._competence = 0.0
        self._tells = 0

    def _make_rule(self) -> RatingRule:
        floor = _FLOORS[self.form] if self.step_floor is None else self.step_floor
        if self.form == "calibrated":
            return LogitRating(self.step, self.competence_step, floor)
        return AverageGap(self.total, int(self.form == "released_code"), floor)

    @property
    def difficulty(self) -> NDArray[np.float64]:
        """D of each prompt, shape (total,); a copy."""
        return self._difficulty.copy()

    @property
    def competence(self) -> float:
        """C."""
        return self._competence

    def believe(self, places: Places | slice) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the pass rates that the difficulties imply.

        In the published forms that is the pass rate at which the update would leave D unchanged, so
        it is accurate only once D has converged. Before its first visit a prompt has the pass rate
        of the model's level, with strength 0.
        """
        mean = self._rule.expected(self._difficulty[places], self._competence)
        return mean, np.where(self._visits[places] > 0, EXPECTATION_WEIGHT, 0.0)

    def learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Move the difficulties of some prompts, and the competence."""
        self._tells += 1
        visits = self._visits[places] + np.uint32(1)
        self._visits[places] = visits
        self._difficulty[places], change = self._rule.update(
            self._difficulty[places],
            self._competence,
            visits.astype(float),
            correct / drawn,
            self._tells,
        )
        self._competence += change

    def difficulties(self, places: Places) -> NDArray[np.float64]:
        """Return D of some prompts, shape (P,)."""
        difficulties: NDArray[np.float64] = self._difficulty[places]
        return difficulties

    def hardness(self, target: float) -> tuple[NDArray[np.float64], float]:
        """Return D of all prompts (not a copy), and the D to aim at."""
        return self._difficulty, self._rule.centre(self._competence, target)

    def metrics(self) -> dict[str, float]:
        """Return the competence, quantiles of the difficulty, and the share of prompts seen.

        Of many prompts the quantiles are those of an even sample of them.
        """
        sample = self._difficulty[:: -(-self.total // _SAMPLED)]
        low, middle, high = np.quantile(sample, (0.1, 0.5, 0.9)).tolist()
        return {
            "competence": self._competence,
            "difficulty_p10": low,
            "difficulty_p50": middle,
            "difficulty_p90": high,
            "visited": float(np.count_nonzero(self._visits)) / self.total,
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from a state.

        Raises:
            ValueError: It lacks something, is of another form or another number of prompts.
        """
        form = str(from_state(state, "form"))
        if form != self.form:
            raise ValueError(f"the state is of the form {form!r}, these are of {self.form!r}")
        super().load_state_dict(state)
