"""Prompts whose difficulty matches the model's competence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.base import BatchSampler, array_from_state, from_state, priors_around
from rollwise.prompts.choice import Mask, Places, nearest_on_both_sides, smallest
from rollwise.prompts.epochs import Epochs
from rollwise.prompts.ratings import AverageGap, LogitRating, Rating
from rollwise.prompts.sampler import State
from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.pool import Key

Form = Literal["paper", "released_code", "calibrated"]
"""`paper`: difficulty is an average of gaps, as published. `released_code`: the same with a first
step of ½, as its authors run it. `calibrated`: difficulty and competence are logits (ours)."""

_FLOORS: dict[Form, float] = {"paper": 0.0, "released_code": 0.0, "calibrated": 0.1}
_SAMPLED = 1 << 16


@dataclass(eq=False)
class CDAS(BatchSampler):
    """Competence-difficulty alignment sampling (arXiv 2505.17652): the prompts nearest to D = C.

    Each prompt has a difficulty D, the model a competence C; all start at 0 and move with the pass
    rates that are told (`ratings.AverageGap`, `ratings.LogitRating`). Half of a batch are the
    prompts nearest to C with D > C, half those with D ≤ C; a side that is short is filled from the
    other, and of equal difficulties those of the earlier keys come. With `form="calibrated"` the
    middle is C − logit(target).

    **Warm-up.** The first epochs are shuffled, so that each prompt is seen before difficulties
    count. A prompt that has been told as often as the epoch asks for is passed over, whoever chose
    it; one that was asked has had its turn, told or not. The last batch of an epoch is filled by
    difficulty.

    As published, the method never forgets (see `step_floor`), leaves most prompts alone for good
    (see `revisit_share`), and aims at a pass rate of about ½ − C: where the model is weak it
    drifts to prompts that it has solved. The calibrated form aims at `target` at any level.

    Tell it a whole step at once: the competence moves once for each call. The prompts of a batch
    come in key order, except in the warm-up.
    """

    form: Form = field(
        default="paper",
        kw_only=True,
        metadata={
            "help": "`paper`: as published; `released_code`: with half its first step; "
            "`calibrated`: in logits."
        },
    )
    target: float = field(
        default=0.5,
        kw_only=True,
        metadata={"help": "The pass rate that the calibrated form aims at."},
    )
    warmup_epochs: int = field(
        default=1, kw_only=True, metadata={"help": "Shuffled epochs before difficulties count."}
    )
    step: float = field(
        default=4.0,
        kw_only=True,
        metadata={"help": "Calibrated form: first step of a difficulty, in logits."},
    )
    competence_step: float = field(
        default=2.0,
        kw_only=True,
        metadata={"help": "Calibrated form: first step of the competence, in logits."},
    )
    step_floor: float | None = field(
        default=None,
        kw_only=True,
        metadata={
            "help": "What the step 1/t never falls below; 0 never forgets. By default 0 in the "
            "published forms and 0.1 in the calibrated one."
        },
    )
    revisit_share: float = field(
        default=0.0,
        kw_only=True,
        metadata={"help": "Share of a batch for the prompts not seen for longest."},
    )

    def __post_init__(self) -> None:
        self._check_settings()
        super().__post_init__()
        total = len(self.keys)
        self._rating = self._make_rating()
        # Filled, not reserved by np.zeros: else the first tells wait for the memory to be given.
        self._difficulty = np.full(total, 0.0)
        self._visits = np.full(total, 0, dtype=np.uint32)
        self._last_told = np.full(total if self.revisit_share else 0, 0, dtype=np.int32)
        self._competence = 0.0
        self._tells = 0
        self._visited = 0
        self._walk = Epochs(total, self.seed) if self.warmup_epochs else None

    def _check_settings(self) -> None:
        one_of("form", self.form, get_args(Form))
        at_least("warmup_epochs", self.warmup_epochs, 0)
        if not 0 < self.target < 1:
            raise ValueError(f"target must lie between 0 and 1, both excluded, got {self.target}")
        if self.target != 0.5 and self.form != "calibrated":
            raise ValueError(
                f"target is a setting of the form 'calibrated', got {self.target} with the form "
                f"{self.form!r}, whose difficulties are no logits"
            )
        for name in ("step", "competence_step"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        for name in ("step_floor", "revisit_share"):
            if not 0 <= (getattr(self, name) or 0.0) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")

    def _make_rating(self) -> Rating:
        floor = _FLOORS[self.form] if self.step_floor is None else self.step_floor
        if self.form == "calibrated":
            return LogitRating(self.step, self.competence_step, floor, self.target)
        return AverageGap(len(self.keys), int(self.form == "released_code"), floor)

    @property
    def difficulty(self) -> NDArray[np.float64]:
        """D of each prompt, shape (P,), in key order; a copy."""
        return self._difficulty.copy()

    @property
    def competence(self) -> float:
        """C."""
        return self._competence

    @property
    def visits(self) -> NDArray[np.uint32]:
        """How often each prompt has been told, shape (P,), in key order; a copy."""
        return self._visits.copy()

    def _choose(self, count: int, exclude: Mask | None) -> Places:
        first = self._warm_up(count, exclude)
        taken = _with(exclude, first, len(self.keys))
        stale = self._longest_unseen(round(self.revisit_share * (count - len(first))), taken)
        taken = _with(taken, stale, len(self.keys))
        nearest = nearest_on_both_sides(
            self._difficulty,
            self._rating.centre(self._competence),
            count - len(first) - len(stale),
            taken,
        )
        return np.concatenate([first, stale, nearest])

    def _warm_up(self, count: int, exclude: Mask | None) -> Places:
        """Take what is left of this epoch of the warm-up, at most `count`."""
        walk = self._walk
        if walk is None:
            return np.empty(0, dtype=np.int64)

        def passed_over(places: NDArray[np.int32]) -> Mask:
            told: Mask = self._visits[places] > walk.epoch
            return told if exclude is None else told | exclude[places]

        chosen = walk.rest(count, passed_over).astype(np.int64)
        if walk.position == walk.total:
            self._walk = self._walk_from(walk.epoch + 1)
        return chosen

    def _walk_from(self, epoch: int, position: int = 0) -> Epochs | None:
        if epoch >= self.warmup_epochs:
            return None
        walk = Epochs(len(self.keys), self.seed, epoch)
        walk.position = position
        return walk

    def _longest_unseen(self, count: int, exclude: Mask | None) -> Places:
        def told_at(block: slice) -> NDArray[np.float64]:
            at = self._last_told[block].astype(float)
            if exclude is not None:
                at[exclude[block]] = np.inf
            return at

        return smallest(len(self._last_told), count, told_at)

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        self._tells += 1
        visits = self._visits[places] + np.uint32(1)
        self._visits[places] = visits
        self._difficulty[places], change = self._rating.update(
            self._difficulty[places],
            self._competence,
            visits.astype(float),
            correct / drawn,
            self._tells,
        )
        self._competence += change
        self._visited += int(np.count_nonzero(visits == 1))
        if self._last_told.size:
            self._last_told[places] = self._tells

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Say what pass rates the difficulties stand for, shape (P,).

        The calibrated form's σ(C − D). For the published forms the resting point of the update,
        inverted; it is only as good as D is settled.
        """
        return self._expected(self.index.places(keys))

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return α and β around what is expected, shape (P, 2); 1 and 1 before the first visit.

        What is expected then is of the model's level, not of the prompt.
        """
        places = self.index.places(keys)
        told = self._visits[places] > 0
        return priors_around(np.where(told, self._expected(places), np.nan))

    def _expected(self, places: Places) -> NDArray[np.float64]:
        return self._rating.expected(self._difficulty[places], self._competence)

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return D of some prompts, shape (P,)."""
        difficulties: NDArray[np.float64] = self._difficulty[self.index.places(keys)]
        return difficulties

    def metrics(self) -> dict[str, float]:
        """Return the competence, quantiles of the difficulty, and the share of prompts seen.

        Of many prompts the quantiles are those of an even sample of them.
        """
        sample = self._difficulty[:: -(-len(self._difficulty) // _SAMPLED)]
        low, middle, high = np.quantile(sample, (0.1, 0.5, 0.9)).tolist()
        return {
            "competence": self._competence,
            "difficulty_p10": low,
            "difficulty_p50": middle,
            "difficulty_p90": high,
            "visited": self._visited / len(self.keys),
            "warming_up": float(self._walk is not None),
        }

    def _own_state(self) -> State:
        walk = self._walk
        state: State = {
            "form": self.form,
            "difficulty": self._difficulty.copy(),
            "visits": self._visits.copy(),
            "competence": self._competence,
            "tells": self._tells,
            "warmup_epoch": self.warmup_epochs if walk is None else walk.epoch,
            "warmup_position": 0 if walk is None else walk.position,
        }
        return state | ({"last_told": self._last_told.copy()} if self._last_told.size else {})

    def _load_own_state(self, state: State) -> None:
        form = str(from_state(state, "form"))
        if form != self.form:
            raise ValueError(f"the state is of the form {form!r}, this sampler is {self.form!r}")
        total = len(self.keys)
        difficulty = array_from_state(state, "difficulty", total, np.float64)
        visits = array_from_state(state, "visits", total, np.uint32)
        last_told = self._last_told
        if last_told.size:
            last_told = array_from_state(state, "last_told", total, np.int32)
        competence, tells = float(from_state(state, "competence")), int(from_state(state, "tells"))
        epoch = int(from_state(state, "warmup_epoch"))
        self._walk = self._walk_from(epoch, int(from_state(state, "warmup_position")))
        self._difficulty, self._visits, self._last_told = difficulty, visits, last_told
        self._competence, self._tells = competence, tells
        self._visited = int(np.count_nonzero(visits))


def _with(mask: Mask | None, places: Places, total: int) -> Mask | None:
    """Add places to a mask; None stands for an empty one."""
    if not len(places):
        return mask
    mask = np.zeros(total, dtype=bool) if mask is None else mask.copy()
    mask[places] = True
    return mask
