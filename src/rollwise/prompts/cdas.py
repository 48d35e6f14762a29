"""Prompts whose difficulty matches the model's competence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs import Belief
from rollwise.beliefs.ratings import FORM_HELP, Form, Ratings
from rollwise.beliefs.state import Indices
from rollwise.prompts.choice import nearest_on_both_sides
from rollwise.prompts.epochs import Epochs
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.keys import Mask, marked
from rollwise.sampling.checks import at_least, setting


@dataclass(eq=False, kw_only=True)
class CDAS(FixedSetSampler):
    """Competence-difficulty alignment sampling (arXiv 2505.17652): the prompts nearest to D = C.

    Each prompt has a difficulty D, the model a competence C. Half of a batch are the prompts
    nearest to C with D > C, half those with D ≤ C; a side that is short is filled from the other.
    With `form="calibrated"` the middle is C − logit(target). Given another belief, it takes those
    whose expected pass rates are just below and just above `target`.

    **Warm-up.** The first epochs are shuffled, so that each prompt is seen before difficulties
    count. A prompt that already has as many visits as epochs have begun is skipped, whatever chose
    it; one that was asked for has had its turn. The last batch of an epoch is filled by difficulty.

    As published, the method never forgets, never revisits most prompts, and aims at a pass rate of
    about ½ − C: if the model is weak it drifts to prompts that it has solved. The calibrated form
    forgets and aims at `target` at any level. Tell it a whole step at once: the competence moves
    once for each call.
    """

    kept = ("_told", "_walk")

    form: Form = setting("paper", FORM_HELP)
    target: float = setting(0.5, "Aim at this pass rate (calibrated form).")
    warmup_epochs: int = setting(1, "Shuffle this many epochs before difficulties count.")

    def __post_init__(self) -> None:
        at_least("warmup_epochs", self.warmup_epochs, 0)
        if not 0 < self.target < 1:
            raise ValueError(f"target must lie between 0 and 1, both excluded, got {self.target}")
        if self.target != 0.5 and self.form != "calibrated" and self.belief is None:
            raise ValueError(
                f"target is a setting of the form 'calibrated', got {self.target} with the form "
                f"{self.form!r}, whose difficulties are not logits"
            )
        super().__post_init__()
        total = len(self.keys)
        self._walk = Epochs(total, self.seed)  # of the warm-up
        self._told = np.full(total, 0, dtype=np.min_scalar_type(self.warmup_epochs))

    def make_belief(self) -> Belief:
        return Ratings(len(self.keys), form=self.form)

    @property
    def difficulty(self) -> NDArray[np.float64]:
        """D of each prompt, shape (P,), in key order, a copy; only with the belief `Ratings`."""
        found: NDArray[np.float64] = self.belief.difficulty  # type: ignore[attr-defined]
        return found

    @property
    def competence(self) -> float:
        """C; only with the belief `Ratings`."""
        return float(self.belief.competence)  # type: ignore[attr-defined]

    def choose(self, count: int, exclude: Mask | None) -> Indices:
        first = self._warm_up(count, exclude)
        taken = marked(exclude, first, len(self.keys))
        if isinstance(self.belief, Ratings):
            hardness, aim = self.belief.hardness(self.target)
        else:
            mean = self.belief.mean(slice(None)).astype(float)
            hardness, aim = 1.0 - np.where(np.isnan(mean), self.target, mean), 1.0 - self.target
        nearest = nearest_on_both_sides(hardness, aim, count - len(first), taken)
        return np.concatenate([first, nearest])

    @property
    def _warming_up(self) -> bool:
        return self._walk.epoch < self.warmup_epochs

    def _warm_up(self, count: int, exclude: Mask | None) -> Indices:
        """Take what is left of this epoch of the warm-up, at most `count`."""
        if not self._warming_up:
            return np.empty(0, dtype=np.int64)
        told: Mask = self._told > self._walk.epoch
        skipped = told if exclude is None else told | exclude
        chosen = self._walk.rest(count, skipped).astype(np.int64)
        if self._walk.position == self._walk.total:
            self._walk.begin(self._walk.epoch + 1)
        return chosen

    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        super().learn(indices, correct, drawn)
        told = self._told[indices]
        self._told[indices] = told + (told < self.warmup_epochs)

    def metrics(self) -> dict[str, float]:
        """Return the belief's metrics, and whether the warm-up is in progress."""
        return {**super().metrics(), "warming_up": float(self._warming_up)}
