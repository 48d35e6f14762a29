"""Prompts whose difficulty matches the model's competence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs import Belief
from rollwise.beliefs.ratings import Form, Ratings
from rollwise.beliefs.state import Indices
from rollwise.prompts.epochs import Epochs
from rollwise.prompts.fixed_set import FixedSetSampler, Mask, smallest
from rollwise.sampling.checks import Inner, Whole


@dataclass(eq=False, kw_only=True)
class CDAS(FixedSetSampler):
    """Competence-difficulty alignment sampling (arXiv 2505.17652): the prompts nearest to D = C.

    Each prompt has a difficulty D, the model a competence C. Half of a batch are the prompts
    nearest to C with D > C, half those with D ≤ C; a side that is short is filled from the other.
    With `form="calibrated"` the middle is C − logit(target). Given another belief, it takes those
    whose expected pass rates are just below and just above `target`.

    **Warm-up.** The first epochs are shuffled, so that each prompt is seen before difficulties
    count. They skip a prompt that already has a visit for each epoch begun. The last batch of an
    epoch is filled by difficulty.

    As published, the method never forgets, never revisits most prompts, and aims at a pass rate of
    about ½ − C: if the model is weak it drifts to prompts that it has solved. The calibrated form
    forgets and aims at `target` at any level. Tell a whole step at once: C moves once a call.
    """

    kept = ("_warm_visits", *(f"_epochs.{name}" for name in Epochs.kept))

    form: Form = "paper"
    """How difficulty is updated: as published (`paper`), with half its first step
    (`released_code`), or in logits (`calibrated`)."""
    target: Inner = 0.5
    """Target pass rate (calibrated form)."""
    warmup_epochs: Whole = 1
    """Epochs in shuffled order before difficulties count."""

    def __post_init__(self) -> None:
        if self.target != 0.5 and self.form != "calibrated" and self.belief is None:
            raise ValueError(
                f"target is a setting of the form 'calibrated', got {self.target} with the form "
                f"{self.form!r}, whose difficulties are not logits"
            )
        super().__post_init__()
        total = len(self.keys)
        self._epochs = Epochs(total, self.seed)  # of the warm-up
        self._warm_visits = np.full(total, 0, dtype=np.min_scalar_type(self.warmup_epochs))

    def make_belief(self) -> Belief:
        return Ratings(len(self.keys), form=self.form)

    @property
    def difficulty(self) -> NDArray[np.float64]:
        """D of each prompt, shape (P,), in key order, a copy; only with the belief `Ratings`."""
        found: NDArray[np.float64] = self.belief.difficulty.copy()  # type: ignore[attr-defined]
        return found

    @property
    def competence(self) -> float:
        """C; only with the belief `Ratings`."""
        return float(self.belief.competence)  # type: ignore[attr-defined]

    def choose(self, count: int, exclude: Mask) -> Indices:
        first = self._rest_of_warm_up(count, exclude)
        taken = exclude.copy()
        taken[first] = True
        if isinstance(self.belief, Ratings):
            hardness, aim = self.belief.difficulty, self.belief.aim(self.target)
        else:
            mean = self.belief.mean(slice(None)).astype(float)
            hardness, aim = 1.0 - np.where(np.isnan(mean), self.target, mean), 1.0 - self.target
        nearest = nearest_on_both_sides(hardness, aim, count - len(first), taken)
        return np.concatenate([first, nearest])

    @property
    def _warming_up(self) -> bool:
        return self._epochs.epoch < self.warmup_epochs

    def _rest_of_warm_up(self, count: int, exclude: Mask) -> Indices:
        if not self._warming_up:
            return np.empty(0, dtype=np.int64)
        skipped = exclude | (self._warm_visits > self._epochs.epoch)
        chosen = self._epochs.rest(count, skipped).astype(np.int64)
        if self._epochs.position == self._epochs.total:
            self._epochs.begin(self._epochs.epoch + 1)
        return chosen

    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        super().learn(indices, correct, drawn)
        self._warm_visits[indices] += self._warm_visits[indices] < self.warmup_epochs

    def metrics(self) -> dict[str, float]:
        """Return the belief's metrics, and whether the warm-up is in progress."""
        return {**super().metrics(), "warming_up": float(self._warming_up)}


def nearest_on_both_sides(
    values: NDArray[np.float64], centre: float, count: int, exclude: Mask
) -> Indices:
    """Return the indices, ascending, of the nearest values to `centre`, half of them above it.

    CDAS's symmetric choice (arXiv 2505.17652): if one side is short, the other fills up. With an
    odd count, the larger part is at or below `centre`. Equal values are taken by index.
    """
    above = values > centre
    higher = smallest(np.where(above, values, np.inf), count, exclude)
    lower = smallest(np.where(above, np.inf, -values), count, exclude)
    from_lower = min(count - min(count // 2, len(higher)), len(lower))
    return np.sort(np.concatenate([higher[: count - from_lower], lower[:from_lower]]))
