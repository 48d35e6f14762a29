"""The tables of a stopping rule as a session looks them up, draw by draw."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.stopping import Stopping

MEANS = 32
"""Beliefs in a pass rate are rounded to multiples of 1 / this, so that prompts share tables."""

Table = list[list[int]]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What `Stopping` says, as lists: a list answers ten times as fast as an array.

    Attributes:
        stopping: What it is of.
        budget: The most draws.
        asked: Whether the rule is asked, by the number of draws settled.
        satisfied, futile: Whether it is met, whether it gives up, by [positives][negatives].
        expected_need: Further draws until the end that are expected, by [positives][negatives].
        certain_need: Further draws until the end at least.
        worthwhile: Further draws that are worth handing out without waiting.
        stays_met: Whether the rule is asked after every draw, and stays met once it is.
    """

    stopping: Stopping
    budget: int
    asked: list[bool]
    satisfied: list[list[bool]]
    futile: list[list[bool]]
    expected_need: list[list[float]]
    certain_need: Table
    worthwhile: Table
    stays_met: bool


def outlook_of(stopping: Stopping, speculation: float) -> Outlook:
    """Build the tables, or take them from those built before (where the rule can be hashed).

    Args:
        stopping: When sampling stops.
        speculation: A draw is worth handing out ahead if it is needed with this probability.
    """
    try:
        return _kept(stopping, speculation)
    except TypeError:
        return _build(stopping, speculation)


@lru_cache(maxsize=1024)
def _kept(stopping: Stopping, speculation: float) -> Outlook:
    return _build(stopping, speculation)


def _build(stopping: Stopping, speculation: float) -> Outlook:
    return Outlook(
        stopping=stopping,
        budget=stopping.budget,
        asked=stopping.asked.tolist(),
        satisfied=stopping.satisfied.tolist(),
        futile=stopping.futile.tolist(),
        expected_need=stopping.expected_need.tolist(),
        certain_need=stopping.certain_need.tolist(),
        worthwhile=stopping.worthwhile(speculation).tolist(),
        stays_met=bool(stopping.asked[1:].all()) and stopping.monotone,
    )


def rounded_priors(priors: ArrayLike) -> NDArray[np.float64]:
    """Round beliefs (α, β), shape (P, 2), so that prompts of like beliefs share their tables.

    The mean goes to a multiple of 1/32 (not to 0 or 1), the strength α + β to a power of 2.
    """
    priors_P2 = np.asarray(priors, dtype=float)
    strength = priors_P2.sum(axis=1)
    mean = np.clip(np.rint(priors_P2[:, 0] / strength * MEANS), 0.5, MEANS - 0.5) / MEANS
    strength = 2.0 ** np.rint(np.log2(strength))
    return np.stack([mean * strength, (1 - mean) * strength], axis=1)
