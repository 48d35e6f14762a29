"""A reward that also says whether the response is correct, and what the reward consists of."""

import math
from collections.abc import Mapping
from typing import Any, Self, SupportsFloat


class Score(float):
    """The reward of a response, with what says whether it is correct.

    A grader may return one in place of a plain number.

    Example:
        >>> score = Score(0.8, acc=1.0, parts={"length": -0.2})
        >>> score + 0, score.acc, score.parts
        (0.8, 1.0, {'length': -0.2})

    Attributes:
        acc: What is compared with `positive_threshold`, from 0 to 1; by default the reward.
        parts: Further figures by name, such as the rewards that it adds up.
    """

    acc: float
    parts: Mapping[str, float]

    def __new__(
        cls, reward: float, acc: float | None = None, parts: Mapping[str, float] | None = None
    ) -> Self:
        made = super().__new__(cls, reward)
        made.acc, made.parts = float(reward if acc is None else acc), dict(parts or {})
        return made

    @classmethod
    def of(cls, found: Any) -> "Score":
        """Read what a reward function returned: a number, or a dictionary as in verl.

        That has a `score`; it may have `acc`, and further numbers, which are the `parts`. Further
        values of other kinds are left out.

        Raises:
            ValueError: Says what is expected.
        """
        if isinstance(found, Score):
            return found
        given = found if isinstance(found, Mapping) else {"score": found}
        try:
            figures = {f"{n}": float(v) for n, v in given.items() if isinstance(v, SupportsFloat)}
        except (TypeError, ValueError, OverflowError, RuntimeError):
            figures = {}
        reward, acc = figures.pop("score", math.nan), figures.pop("acc", None)
        if not math.isfinite(reward):
            raise ValueError("one finite number" if given is not found else "a finite `score`")
        if given.get("acc") is not None and (acc is None or not (0 <= acc <= 1 or acc == reward)):
            raise ValueError("an `acc` that is true, false or a number from 0 to 1")
        return cls(reward, acc, figures)

    @property
    def told(self) -> float | dict[str, float]:
        """What `of` reads back, of numbers, text and dictionaries alone."""
        if self.acc == self and not self.parts:
            return float(self)
        return {**self.parts, "score": float(self), "acc": self.acc}


def acc_of(reward: float) -> float:
    """Return what of a reward is compared with `positive_threshold`."""
    return reward.acc if isinstance(reward, Score) else reward
