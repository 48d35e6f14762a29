"""An exit rule of one's own: stop once the pass rate is known well enough.

With n₊ correct and n₋ incorrect responses the pass rate has the posterior Beta(n₊ + 1, n₋ + 1). A
prompt has been sampled enough when the posterior's standard deviation is at most `precision`.
"""

from dataclasses import dataclass, field

import numpy as np

import rollwise as rw


@dataclass(frozen=True)
class Confident(rw.ExitRule):
    """Stop at a posterior standard deviation of the pass rate of at most `precision`."""

    precision: float = field(default=0.2, metadata={"help": "Largest standard deviation."})

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise ValueError(f"precision must lie between 0 and 1, got {self.precision}")

    def satisfied(self, positives, negatives):
        """Counts in, a bool out; arrays in, a boolean array out."""
        a, b = np.asarray(positives) + 1, np.asarray(negatives) + 1
        deviation = np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
        return (deviation <= self.precision)[()]
