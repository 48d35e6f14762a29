"""From a pool of responses to the group of fixed size that is trained on."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.pool import Pool, is_uniform

Strategy = Literal["balanced", "all"]
"""`balanced`: half correct, half incorrect. `all`: the whole pool, whatever its size."""


@dataclass(frozen=True, eq=False)
class Group:
    """The members of a pool that are trained on.

    Attributes:
        indices: Their places in the pool, shape (k,), ascending (draw order).
        rewards: Their rewards, shape (k,).
    """

    indices: NDArray[np.intp]
    rewards: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def uniform(self) -> bool:
        """Whether all members have the same reward."""
        return is_uniform(self.rewards)


def check_size(size: int, strategy: Strategy) -> None:
    """Refuse a group size that the strategy cannot fill by its rule.

    Raises:
        ValueError: An unknown strategy, a size below 1, or an odd size for `balanced`.
    """
    one_of("strategy", strategy, get_args(Strategy))
    at_least("size", size, 1)
    if strategy == "balanced" and size % 2:
        raise ValueError(
            f"size must be even for strategy 'balanced' (half correct, half incorrect), got {size}"
        )


def select_group(
    pool: Pool,
    size: int,
    strategy: Strategy = "balanced",
    rng: np.random.Generator | None = None,
) -> Group:
    """Choose the members of `pool` that are trained on.

    `balanced` takes k/2 correct and k/2 incorrect responses; where one side has fewer, the other
    fills up (Reinforce-Ada, arXiv 2510.04996, section 3). A pool smaller than `size` is taken
    whole. Members are chosen by draw order or at random, never by the time they were finished,
    which would favour short answers.

    Args:
        pool: All responses of one prompt.
        size: k, the members wanted. `all` does not look at it.
        strategy: `balanced` or `all`.
        rng: Chooses within a side at random; None takes the first drawn.
    """
    check_size(size, strategy)
    correct = pool.correct
    if strategy == "all":
        indices = np.arange(len(pool))
    else:
        positives, negatives = np.flatnonzero(correct), np.flatnonzero(~correct)
        n_positives = min(len(positives), max(size // 2, size - len(negatives)))
        n_negatives = min(len(negatives), size - n_positives)
        chosen = _take(positives, n_positives, rng), _take(negatives, n_negatives, rng)
        indices = np.sort(np.concatenate(chosen))
    return Group(indices, pool.rewards[indices])


def _take(
    indices: NDArray[np.intp], count: int, rng: np.random.Generator | None
) -> NDArray[np.intp]:
    return indices[:count] if rng is None else rng.choice(indices, count, replace=False)
