"""Shuffled epochs: every prompt once before any repeats; of all, or later only the hard ones."""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.state import Kept
from rollwise.prompts.fixed_set import CountingSampler
from rollwise.prompts.keys import Mask
from rollwise.sampling.checks import finite_at_least, setting


class Epochs(Kept):
    """Walks through 0 to `total` − 1 in an order shuffled by seed and epoch.

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

    def take(self, count: int, skipped: Mask | None = None) -> NDArray[np.int32]:
        """Take the next `count`, none twice; across an epoch's end those already taken come last.

        Args:
            count: At most `total`.
            skipped: Members to skip, shape (total,). If too few remain within this epoch and the
                next, fewer are returned.
        """
        chosen = self.rest(count, skipped)
        missing = count - len(chosen)
        if missing:
            self.begin(self.epoch + 1)
            twice = np.zeros(self.total, dtype=bool)
            twice[chosen] = True
            twice = twice[self.order]
            self.order = np.concatenate([self.order[~twice], self.order[twice]])
            more = self.rest(missing, skipped, self.total - len(chosen))
            chosen = np.concatenate([chosen, more])
        return chosen

    def rest(
        self, count: int, skipped: Mask | None = None, end: int | None = None
    ) -> NDArray[np.int32]:
        """Take the next `count` of this epoch, or as many as remain before `end`."""
        left = self.order[self.position : end]
        fit = np.arange(len(left)) if skipped is None else np.flatnonzero(~skipped[left])
        fit = fit[:count]
        if count:
            self.position += len(left) if len(fit) < count else int(fit[-1]) + 1
        return left[fit]


@dataclass(eq=False)
class Uniform(CountingSampler):
    """Shuffled epochs: each prompt once before any comes again (the papers' "random").

    A batch has no prompt twice, even across an epoch's end; an excluded prompt loses its turn.
    Results change the expected pass rates, never which prompts come.
    """

    kept = ("_walk",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._walk = Epochs(len(self.keys), self.seed)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._walk.epoch

    def choose(self, count: int, exclude: Mask | None) -> NDArray[np.int32]:
        return self._walk.take(count, exclude)

    def metrics(self) -> dict[str, float]:
        """Return the number of epochs done, fractions included, and the share of prompts seen."""
        return {"epoch": self._walk.progress, **super().metrics()}


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

    kept = ("hard_only", "_walk", "_hard_walk")

    levels: InitVar[Sequence[int | None]]
    min_level: int = setting(4, "Treat problems of this level or above as hard.")
    uniform_epochs: float = setting(1.0, "Sample all problems for this many epochs first.")

    def __post_init__(self, levels: Sequence[int | None]) -> None:
        super().__post_init__()
        finite_at_least("uniform_epochs", self.uniform_epochs, 0)
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
        self._walk = Epochs(len(self.keys), self.seed)
        self._hard_walk = Epochs(len(self._hard), self.seed)

    def choose(self, count: int, exclude: Mask | None) -> NDArray[np.int32]:
        self.hard_only = self._walk.progress >= self.uniform_epochs
        if not self.hard_only:
            return self._walk.take(count, exclude)
        excluded = None if exclude is None else exclude[self._hard]
        return self._hard[self._hard_walk.take(min(count, len(self._hard)), excluded)]

    @property
    def exhausted(self) -> bool:
        left = slice(None) if self._walk.progress < self.uniform_epochs else self._hard
        return bool(self.visits and (self._visited[left] >= self.visits).all())

    def metrics(self) -> dict[str, float]:
        """Return the epochs of this part, whether only hard prompts come, and the share seen."""
        return {
            "epoch": (self._hard_walk if self.hard_only else self._walk).progress,
            "hard_only": float(self.hard_only),
            **super().metrics(),
        }
