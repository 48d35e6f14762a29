"""Prompts in proportion to what one more response to them is worth."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs import Belief, LogitKalman
from rollwise.beliefs.state import Indices
from rollwise.prompts.fixed_set import FixedSetSampler
from rollwise.prompts.keys import Mask, allowed
from rollwise.sampling.checks import at_most, finite_at_least, one_of, setting
from rollwise.sampling.objectives import OBJECTIVES, PassRateObjective

FUNCTIONS = {
    name: kind() for name, kind in OBJECTIVES.items() if issubclass(kind, PassRateObjective)
}
"""The functions f of the pass rate that a worth can be computed for."""


@dataclass(eq=False, kw_only=True)
class Worth(FixedSetSampler):
    """Draws prompts with probability proportional to the worth of a response, f′(p)²·p(1 − p).

    With a good baseline, that is the expected square of a response's advantage for Σ f(p), whatever
    group it is in. `linear` prefers pass rates near ½ and `log` hard prompts; `arcsine` values all
    prompts alike. p is the mean of the belief, by default `LogitKalman`. A share `exploration` of
    the probability is spread evenly, so that every belief is renewed now and then.

    A batch is drawn without replacement. Prompts that are chosen more often also count more: they
    are not weighted down to compensate.
    """

    belief_kind: ClassVar[type[Belief]] = LogitKalman

    objective: str = setting(
        "linear", "Value responses by this f: `linear`, `log`, `sqrt`, `arcsine`."
    )
    power: float = setting(1.0, "Raise the worth to this power (0: choose uniformly).")
    exploration: float = setting(0.1, "Spread this share of the probability evenly over prompts.")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("objective", self.objective, tuple(FUNCTIONS))
        finite_at_least("power", self.power, 0)
        at_most("power", self.power, 100)
        if not 0 < self.exploration <= 1:
            raise ValueError(f"exploration must be above 0, at most 1, got {self.exploration}")

    def worth(self, indices: Indices | slice) -> NDArray[np.float64]:
        """Return (f′(p)²·p(1 − p))^power, shape (P,); p = ½ where nothing is expected."""
        mean = np.asarray(self.belief.mean(indices), dtype=float)
        known = np.clip(np.where(np.isnan(mean), 0.5, mean), 1e-3, 1.0 - 1e-3)
        slope = FUNCTIONS[self.objective].slope(known)
        worth: NDArray[np.float64] = (slope**2 * known * (1.0 - known)) ** self.power
        return worth

    def choose(self, count: int, exclude: Mask | None) -> Indices:
        indices = allowed(len(self.keys), exclude)
        if not len(indices):
            return indices
        worth = self.worth(indices)
        rate = (1.0 - self.exploration) * worth / worth.mean() + self.exploration
        times = self.rng().standard_exponential(len(indices)) / rate
        return indices[np.argsort(times, kind="stable")[:count]]
