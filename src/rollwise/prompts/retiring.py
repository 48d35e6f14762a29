"""Leave out prompts that the model has mastered, or that were visited often enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.state import (
    Kept,
    State,
    metrics_of,
    named_under,
    part_of_state,
    saveable,
    set_values,
    state_of,
    values_in,
)
from rollwise.prompts.fixed_set import check_same_prompts
from rollwise.prompts.keys import Mask, counts_by_index, fingerprint, number
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.checks import at_least, setting
from rollwise.sampling.draws import Key


@dataclass(eq=False)
class Retiring(Kept, PromptSampler):
    """Wraps a sampler so that a prompt solved at several visits in a row is not asked again.

    A visit counts as solved if its pass rate is at least `pass_rate`. A retired prompt with a lower
    one later comes back. If fewer prompts are left than a batch takes, the wrapped sampler fills
    the batch with retired ones, and the metric `recalled` counts them. With a true pass rate of
    0.7, 4 responses are all correct at every fourth visit; two in a row at one in seventeen.

    With `max_visits`, a prompt is asked for so many visits and never again, mastered or not.

    Args:
        sampler: Chooses among the prompts left; any `PromptSampler`.
        keys: The prompts, each once; not needed if the wrapped sampler has an attribute `keys`.

    Raises:
        TypeError: `sampler` is no `PromptSampler`, or nothing says what the prompts are.
        ValueError: A setting out of its range.
    """

    kept = ("_solved", "_visits")

    sampler: PromptSampler
    pass_rate: float | None = setting(
        0.9, "Count a visit as solved from this pass rate on (none: retire no mastered prompt)."
    )
    visits: int = setting(2, "Retire a prompt after this many solved visits in a row, at most 255.")
    keys: Sequence[Key] = field(default=(), repr=False)
    max_visits: int | None = setting(None, "Never ask for a prompt again after this many visits.")

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, PromptSampler):
            raise TypeError(f"sampler must be a PromptSampler, got {type(self.sampler).__name__}")
        if self.pass_rate is not None and not 0 < self.pass_rate <= 1:
            raise ValueError(f"pass_rate must lie above 0, at most 1, got {self.pass_rate}")
        at_least("visits", self.visits, 1)
        if self.visits > np.iinfo(np.uint8).max:
            raise ValueError(f"visits must be at most 255, got {self.visits}")
        if self.max_visits is not None:
            at_least("max_visits", self.max_visits, 1)
        keys = self.keys if len(self.keys) else getattr(self.sampler, "keys", ())
        if not len(keys):
            raise TypeError(
                f"{type(self.sampler).__name__} has no attribute `keys`: "
                "say what the prompts are, Retiring(sampler, keys=...)"
            )
        self.index = number(keys)
        self.keys = tuple(self.index)
        self._solved = np.full(len(self.keys), 0, dtype=np.uint8)
        self._visits = np.full(len(self.keys), 0, dtype=np.int32)
        self._recalled = 0

    @property
    def batch_size(self) -> int | None:
        """Prompts a step; None if the wrapped sampler has no attribute `batch_size`."""
        return getattr(self.sampler, "batch_size", None)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all keys in their order."""
        return fingerprint(self.keys)

    @property
    def retired(self) -> Mask:
        """Which prompts are retired, shape (P,), in key order."""
        return self._solved >= self.visits

    @property
    def chooser(self) -> PromptSampler:
        return self.sampler.chooser

    @property
    def exhausted(self) -> bool:
        return self.max_visits is not None and bool((self._visits >= self.max_visits).all())

    def ask(self, count: int | None = None, exclude: Collection[Key] = ()) -> list[Key]:
        """Choose among the prompts that are not retired; fill up with retired ones.

        If the size of a batch is unknown, retired ones come only when no others are left.
        """
        count = self.batch_size if count is None else count
        left_out, retired = set(exclude), self._keys_of(self.retired)
        if self.max_visits is not None:
            left_out |= self._keys_of(self._visits >= self.max_visits)
        batch, recalled = self.sampler.ask(count, exclude=left_out | retired), []
        missing = not batch if count is None else min(count, len(self.keys)) > len(batch)
        if missing and retired - left_out:
            further = None if count is None else count - len(batch)
            recalled = self.sampler.ask(further, exclude=left_out | (self.index.keys() - retired))
        self._recalled = len(recalled)
        return batch + recalled

    def _keys_of(self, mask: Mask) -> set[Key]:
        return {self.keys[index] for index in np.flatnonzero(mask).tolist()}

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        indices, positives, draws = counts_by_index(self.index, keys, correct, drawn)
        self.sampler.tell(keys, correct, drawn)
        self._visits[indices] += 1
        if self.pass_rate is None:
            return
        solved = positives >= self.pass_rate * draws
        streak = np.minimum(self._solved[indices], 254) + 1
        self._solved[indices] = np.where(solved, streak, 0)

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.sampler.expected_pass_rates(keys)

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64] | None:
        return self.sampler.difficulties(keys)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        return self.sampler.pass_rate_priors(keys)

    def state_dict(self) -> State:
        return {
            "sampler": type(self).__name__,
            "prompts": len(self.keys),
            "fingerprint": self.fingerprint,
            **state_of(self, self.kept),
            **named_under("wrapped", saveable(self.sampler)),
        }

    def load_state_dict(self, state: State) -> None:
        check_same_prompts(state, self)
        values = values_in(self, self.kept, state)
        self.sampler.load_state_dict(part_of_state(state, "wrapped"))
        set_values(values)

    def metrics(self) -> dict[str, float]:
        """Return those of the wrapped sampler, the share retired, and how many were recalled."""
        return {
            **metrics_of(self.sampler),
            "retired": float(np.count_nonzero(self.retired)) / len(self.keys),
            "recalled": float(self._recalled),
        }
