"""Shuffled epochs: every prompt once before any repeats; of all, or later only the hard ones."""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.prompts.fixed_set import CountingSampler, Mask
from rollwise.sampling.checks import NonNegative


class Epochs:
    """Takes 0 to `total` − 1 in an order shuffled by seed and epoch.

    Attributes:
        epoch: The number of this epoch, from 0.
        order: The order of this epoch, shape (total,).
        position: The number of its members that have been taken.
    """

    kept = ("epoch", "order", "position")

    def __init__(self, total: int, seed: int) -> None:
        self.total, self.seed = total, seed
        self.begin(0)

    @property
    def progress(self) -> float:
        """Epochs so far, counting parts of one."""
        return self.epoch + self.position / self.total

    def begin(self, epoch: int) -> None:
        """Move to the beginning of an epoch."""
        self.epoch, self.position = epoch, 0
        self.order = np.arange(self.total, dtype=np.int32)
        np.random.default_rng((self.seed, epoch)).shuffle(self.order)

    def take(self, count: int, skipped: Mask) -> NDArray[np.int32]:
        """Take the next `count`, none twice; across an epoch's end those already taken come last.

        `count` is at most `total`. Those `skipped`, shape (total,), are left out; if too few remain
        within this epoch and the next, fewer are returned.
        """
        chosen = self.rest(count, skipped)
        missing = count - len(chosen)
        if missing:
            self.begin(self.epoch + 1)
            twice = np.isin(self.order, chosen)
            self.order = np.concatenate([self.order[~twice], self.order[twice]])
            more = self.rest(missing, skipped, self.total - len(chosen))
            chosen = np.concatenate([chosen, more])
        return chosen

    def rest(self, count: int, skipped: Mask, end: int | None = None) -> NDArray[np.int32]:
        """Take the next `count` of this epoch, or as many as remain before `end`."""
        left = self.order[self.position : end]
        fit = np.flatnonzero(~skipped[left])[:count]
        if count:
            self.position += len(left) if len(fit) < count else int(fit[-1]) + 1
        return left[fit]


@dataclass(eq=False)
class Uniform(CountingSampler):
    """Shuffled epochs: each prompt once before any comes again (the papers' "random").

    A batch has no prompt twice, even across an epoch's end; an excluded prompt loses its turn.
    Results change the expected pass rates, never which prompts come.
    """

    kept = tuple(f"_epochs.{name}" for name in Epochs.kept)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epochs = Epochs(len(self.keys), self.seed)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._epochs.epoch

    def choose(self, count: int, exclude: Mask) -> NDArray[np.int32]:
        return self._epochs.take(count, exclude)

    def metrics(self) -> dict[str, float]:
        """Return the number of epochs done, fractions included, and the share of prompts seen."""
        return {"epoch": self._epochs.progress, **super().metrics()}


@dataclass(eq=False, kw_only=True)
class Curriculum(CountingSampler):
    """Uniform over all prompts first, then only over those of a level of at least `min_level`.

    The baseline of CDAS's paper (arXiv 2505.17652: MATH's levels, from 4 on). Both parts are
    shuffled epochs. Results change the expected pass rates, never which prompts come.

    Args:
        keys: The prompts, each once.
        batch_size: Prompts per step, at most as many as are hard.
        seed: The seed of the shuffling.
        levels: The labelled level of each prompt, shape (P,), in key order; None is never hard.

    Raises:
        ValueError: Levels for another number of prompts, or fewer hard prompts than a batch takes.
    """

    kept = (
        "hard_only",
        *(f"{of}.{name}" for of in ("_epochs", "_hard_epochs") for name in Epochs.kept),
    )

    levels: InitVar[Sequence[int | None]]
    min_level: int = 4
    """Level from which on problems are hard."""
    uniform_epochs: NonNegative = 1.0
    """First epochs, in which all problems are sampled."""

    def __post_init__(self, levels: Sequence[int | None]) -> None:
        super().__post_init__()
        if len(levels) != len(self.keys):
            raise ValueError(
                f"levels must have one entry for each of the {len(self.keys)} prompts, "
                f"got {len(levels)}"
            )
        hard = [level is not None and level >= self.min_level for level in levels]
        self._hard = np.flatnonzero(hard).astype(np.int32)
        if self.batch_size > len(self._hard):
            raise ValueError(
                f"batch_size must be at most the number of prompts of level {self.min_level} or "
                f"above ({len(self._hard)}), got {self.batch_size}"
            )
        self.hard_only = False
        self._epochs = Epochs(len(self.keys), self.seed)
        self._hard_epochs = Epochs(len(self._hard), self.seed)

    def choose(self, count: int, exclude: Mask) -> NDArray[np.int32]:
        self.hard_only = self._epochs.progress >= self.uniform_epochs
        if not self.hard_only:
            return self._epochs.take(count, exclude)
        count = min(count, len(self._hard))
        return self._hard[self._hard_epochs.take(count, exclude[self._hard])]

    @property
    def exhausted(self) -> bool:
        left = slice(None) if self._epochs.progress < self.uniform_epochs else self._hard
        return bool(self.visits and (self._visited[left] >= self.visits).all())

    def metrics(self) -> dict[str, float]:
        """Return the epochs of this part, whether only hard prompts come, and the share seen."""
        return {
            "epoch": (self._hard_epochs if self.hard_only else self._epochs).progress,
            "hard_only": float(self.hard_only),
            **super().metrics(),
        }
