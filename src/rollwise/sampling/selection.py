"""From a pool of responses to the group of fixed size that is trained on."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.checks import at_least, one_of
from rollwise.sampling.pool import Pool, has_zero_variance

Strategy = Literal["balanced", "max_variance", "positives", "all"]
"""How a group is chosen (`select_group`)."""


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
    def zero_variance(self) -> bool:
        """Whether all members have the same reward."""
        return has_zero_variance(self.rewards)


def check_size(size: int, strategy: Strategy) -> None:
    """Refuse an unknown strategy, a size below 1, or an odd size for `balanced`."""
    one_of("strategy", strategy, get_args(Strategy))
    at_least("size", size, 1)
    if strategy == "balanced" and size % 2:
        raise ValueError(
            "`size` must be even for strategy 'balanced' (half correct, half incorrect), "
            f"got {size}"
        )


def select_group(
    pool: Pool, size: int, strategy: Strategy = "balanced", rng: np.random.Generator | None = None
) -> Group:
    """Choose the members of `pool` that are trained on.

    * `balanced` takes k/2 correct and k/2 incorrect responses; if one side has fewer, the other
      fills up (Reinforce-Ada, arXiv 2510.04996, section 3).
    * `max_variance` takes the k whose rewards have the largest variance: the a highest and k − a
      lowest for the best a (PODS, arXiv 2504.13818), the largest a in a tie. For rewards of 0 and
      1, and an even k, it makes the groups that `balanced` makes.
    * `positives` takes the correct ones, at most k; none if the pool has none.
    * `all` takes the whole pool, whatever the size.

    Except under `positives`, a pool smaller than `size` is taken whole. Among responses that serve
    equally well, draw order decides, or `rng`; never when they were finished, which would favour
    short answers.

    Raises:
        ValueError: An unknown strategy, a size below 1, or an odd one for `balanced`.
    """
    check_size(size, strategy)
    if strategy == "all":
        chosen = np.arange(len(pool))
    elif strategy == "positives":
        chosen = _take(np.flatnonzero(pool.correct), size, rng)
    elif strategy == "max_variance":
        chosen = _most_varied(pool.rewards, size, rng)
    else:
        positives, negatives = np.flatnonzero(pool.correct), np.flatnonzero(~pool.correct)
        half = min(len(positives), max(size // 2, size - len(negatives)))
        halves = _take(positives, half, rng), _take(negatives, size - half, rng)
        chosen = np.concatenate(halves)
    indices = np.sort(chosen)
    return Group(indices, pool.rewards[indices])


def _most_varied(
    rewards: NDArray[np.float64], size: int, rng: np.random.Generator | None
) -> NDArray[np.intp]:
    n = len(rewards)
    if n <= size:
        return np.arange(n)
    order = np.arange(n) if rng is None else rng.permutation(n)
    ascending = np.lexsort((order, rewards))
    # Scaled to [0, 1], so that two rewards become integers and equal variances come out equal.
    scaled = (rewards[ascending] - rewards.min()) / (np.ptp(rewards) or 1.0)
    below = np.pad(np.cumsum([scaled, scaled**2], axis=1), ((0, 0), (1, 0)))
    n_highest = np.arange(size, -1, -1)
    totals, squares = below[:, size - n_highest] + below[:, [n]] - below[:, n - n_highest]
    highest = n_highest[np.argmax(size * squares - totals**2)]
    lowest, others = np.split(ascending, [size - highest])
    descending = np.lexsort((order[others], -rewards[others]))
    return np.concatenate([lowest, others[descending[:highest]]])


def _take(
    indices: NDArray[np.intp], count: int, rng: np.random.Generator | None
) -> NDArray[np.intp]:
    if rng is None:
        return indices[:count]
    return rng.choice(indices, min(count, len(indices)), replace=False)
