"""Prompts that fail often, more often."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.base import BatchSampler, array_from_state
from rollwise.prompts.choice import Mask, Places, smallest
from rollwise.prompts.sampler import State
from rollwise.sampling.pool import Key


@dataclass(eq=False)
class Prioritized(BatchSampler):
    """Draws prompts with a probability proportional to 1 − s, s the latest pass rate.

    Kimi k1.5 (arXiv 2501.12599, prioritized sampling). A batch is drawn without replacement, one
    prompt after the other among those left: each prompt gets an exponential time of rate 1 − s,
    and those whose time comes first are taken. A prompt at s = 1 comes only where all others are
    taken, then uniformly.

    The latest pass rate of few responses is noisy: with 4, a prompt of true pass rate 0.7 is
    taken for solved every fourth time, and is then left alone for good.
    """

    unvisited: float = field(
        default=0.0,
        kw_only=True,
        metadata={"help": "The pass rate by which a prompt is drawn before its first visit."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.unvisited <= 1:
            raise ValueError(f"unvisited must lie between 0 and 1, got {self.unvisited}")
        self._pass_rates = np.full(len(self.keys), np.nan, np.float32)
        self._visited = 0

    def _choose(self, count: int, exclude: Mask | None) -> Places:
        rng = self._rng()

        def times_of(block: slice) -> NDArray[np.float64]:
            times: NDArray[np.float64] = rng.standard_exponential(block.stop - block.start)
            latest = self._pass_rates[block]
            with np.errstate(divide="ignore", invalid="ignore"):
                times /= 1.0 - np.where(np.isnan(latest), self.unvisited, latest)
            if exclude is not None:
                times[exclude[block]] = np.inf
            return times

        chosen = smallest(len(self.keys), count, times_of)
        if len(chosen) == count:
            return chosen
        left = np.ones(len(self.keys), dtype=bool) if exclude is None else ~exclude
        left[chosen] = False
        solved = np.flatnonzero(left)
        more = rng.choice(solved, min(count - len(chosen), len(solved)), replace=False)
        return np.concatenate([chosen, more])

    def _learn(self, places: Places, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        self._visited += int(np.count_nonzero(np.isnan(self._pass_rates[places])))
        self._pass_rates[places] = correct / drawn

    def metrics(self) -> dict[str, float]:
        """Return the share of prompts seen."""
        return {"visited": self._visited / len(self.keys)}

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return the latest pass rate of each prompt, shape (P,); NaN before its first visit."""
        latest: NDArray[np.float32] = self._pass_rates[self.index.places(keys)]
        return latest.astype(float)

    def _own_state(self) -> State:
        return {"pass_rates": self._pass_rates.copy()}

    def _load_own_state(self, state: State) -> None:
        self._pass_rates = array_from_state(state, "pass_rates", len(self.keys), np.float32)
        self._visited = int(np.count_nonzero(~np.isnan(self._pass_rates)))
