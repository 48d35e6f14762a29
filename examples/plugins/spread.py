"""An exit rule of one's own that looks at rewards: stop once they are spread out enough."""

from dataclasses import dataclass, field

import numpy as np

import rollwise as rw


@dataclass(frozen=True)
class Spread(rw.RewardRule):
    """Stop once the largest reward exceeds the smallest by at least `least`."""

    least: float = field(default=0.5, metadata={"help": "Difference between the rewards wanted."})

    def __post_init__(self) -> None:
        if not self.least > 0:
            raise ValueError(f"least must be above 0, got {self.least}")

    def satisfied_by(self, rewards):
        """Look at the rewards so far, shape (N,), N ≥ 1, in draw order."""
        return bool(np.ptp(rewards) >= self.least)

    def satisfied(self, positives, negatives):
        """Guess the same by counts: two responses may differ enough, one cannot."""
        return positives + negatives >= 2
