"""Prompts that are mastered are left alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.prompts.base import (
    BatchSampler,
    array_from_state,
    check_same_prompts,
    counts_by_place,
)
from rollwise.prompts.choice import Mask
from rollwise.prompts.index import KeyIndex
from rollwise.prompts.sampler import State
from rollwise.sampling.checks import at_least
from rollwise.sampling.pool import Key

_WRAPPED = "wrapped."


@dataclass(eq=False)
class Retiring:
    """Around another sampler: a prompt that was solved several visits in a row is not asked again.

    A visit counts as solved where its pass rate is at least `pass_rate`. A retired prompt that is
    told a lower one comes back. Where fewer prompts are left than a batch takes, the batch is
    filled with retired ones, as the wrapped sampler chooses among them: training goes on on
    mastered prompts, and the metrics say how many (`recalled`).

    With few responses a visit, a prompt may be solved by chance: at a true pass rate of 0.7 and 4
    responses every fourth visit is. Two in a row make that one in seventeen.

    Args:
        sampler: Chooses among those left; any `BatchSampler`.

    Raises:
        TypeError: `sampler` is no `BatchSampler`, so that it cannot leave prompts out.
        ValueError: A setting out of its range.
    """

    sampler: BatchSampler
    pass_rate: float = field(
        default=0.9, metadata={"help": "From this pass rate on a visit counts as solved."}
    )
    visits: int = field(
        default=2, metadata={"help": "Solved visits in a row that retire a prompt, at most 255."}
    )

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, BatchSampler):
            raise TypeError(
                "sampler must be a BatchSampler, whose ask can leave prompts out, "
                f"got {type(self.sampler).__name__}"
            )
        if not 0 < self.pass_rate <= 1:
            raise ValueError(f"pass_rate must lie above 0, at most 1, got {self.pass_rate}")
        at_least("visits", self.visits, 1)
        if self.visits > np.iinfo(np.uint8).max:
            raise ValueError(f"visits must be at most 255, got {self.visits}")
        self._solved = np.full(len(self.keys), 0, dtype=np.uint8)
        self._recalled = 0

    @property
    def keys(self) -> Sequence[Key]:
        """The prompts, retired ones included."""
        return self.sampler.keys

    @property
    def index(self) -> KeyIndex:
        """From keys to places."""
        return self.sampler.index

    @property
    def batch_size(self) -> int:
        """Prompts a step."""
        return self.sampler.batch_size

    @property
    def retired(self) -> Mask:
        """Which prompts are retired, shape (P,), in key order."""
        return self._solved >= self.visits

    def ask(self, count: int | None = None, exclude: Mask | None = None) -> list[Key]:
        """Choose among the prompts that are not retired; see `BatchSampler.ask`."""
        count = self.batch_size if count is None else count
        retired = self.retired
        batch = self.sampler.ask(count, retired if exclude is None else retired | exclude)
        missing = min(count, len(self.keys)) - len(batch)
        recalled: list[Key] = []
        if missing and retired.any():
            active = ~retired
            recalled = self.sampler.ask(missing, active if exclude is None else active | exclude)
        self._recalled = len(recalled)
        return batch + recalled

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        """Tell the wrapped sampler, and count each prompt's solved visits in a row."""
        places, positives, draws = counts_by_place(self.sampler.index, keys, correct, drawn)
        self.sampler.tell(keys, correct, drawn)
        solved = positives >= self.pass_rate * draws
        streak = np.minimum(self._solved[places], 254) + 1
        self._solved[places] = np.where(solved, streak, 0)

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return what the wrapped sampler expects, shape (P,)."""
        return self.sampler.expected_pass_rates(keys)

    def difficulties(self, keys: Sequence[Key]) -> NDArray[np.float64] | None:
        """Return what the wrapped sampler says of difficulties, shape (P,), or None."""
        return self.sampler.difficulties(keys)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return what the wrapped sampler believes, shape (P, 2)."""
        return self.sampler.pass_rate_priors(keys)

    def state_dict(self) -> State:
        """Return the wrapped sampler's state, and the solved visits in a row of each prompt."""
        wrapped = self.sampler.state_dict()
        return {"solved": self._solved.copy()} | {_WRAPPED + k: v for k, v in wrapped.items()}

    def load_state_dict(self, state: State) -> None:
        """Go on from a state.

        Raises:
            ValueError: Says what the state lacks, or how its prompts or sampler differ.
        """
        wrapped = {k.removeprefix(_WRAPPED): v for k, v in state.items() if k.startswith(_WRAPPED)}
        check_same_prompts(wrapped, type(self.sampler).__name__, self.sampler.index)
        solved = array_from_state(state, "solved", len(self.keys), np.uint8)
        self.sampler.load_state_dict(wrapped)
        self._solved = solved

    def metrics(self) -> dict[str, float]:
        """Return those of the wrapped sampler, the share retired, and how many were recalled."""
        return {
            **self.sampler.metrics(),
            "retired": float(np.count_nonzero(self.retired)) / len(self.keys),
            "recalled": float(self._recalled),
        }
