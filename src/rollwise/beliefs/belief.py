"""The contract of a belief: what is known of pass rates, queried and updated by prompt index."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs import state as states
from rollwise.beliefs.state import Indices, State
from rollwise.sampling.checks import Checked, array_from

Floats = NDArray[np.floating]

EXPECTATION_WEIGHT = 4.0
"""How many responses an expected pass rate of unknown strength counts as: those of one visit."""


@dataclass(eq=False)
class Belief(Checked, ABC):
    """What is known of the pass rate of each prompt of a fixed set.

    Write `believe` and `learn`, and name in `kept` the attributes that a resumed run needs. The
    prompt sampler that uses a belief (`belief=...`) updates it, and anything else may query it.
    Prompts are named by their indices in the order of the sampler's keys. The fields of a subclass
    are its settings.

    Example:
        >>> @dataclass(eq=False)
        ... class AllTime(Belief):
        ...     kept = ("correct", "drawn")
        ...
        ...     def __post_init__(self):
        ...         self.correct, self.drawn = np.zeros(self.total), np.zeros(self.total)
        ...
        ...     def believe(self, indices):
        ...         drawn = self.drawn[indices]
        ...         return (self.correct[indices] + 1) / (drawn + 2), drawn
        ...
        ...     def learn(self, indices, correct, drawn):
        ...         self.correct[indices] += correct
        ...         self.drawn[indices] += drawn

    Args:
        total: The number of prompts.

    Attributes:
        kept: What makes up its state: arrays of shape (total, ...), numbers and texts. `part.name`
            is an attribute of an attribute.
        identity: Those of `kept` that a loaded state must share.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    identity: ClassVar[tuple[str, ...]] = ()

    total: int

    @abstractmethod
    def believe(self, indices: Indices | slice) -> tuple[Floats, Floats]:
        """Return the expected pass rates of some prompts, and how much they rest on.

        Args:
            indices: Which prompts, shape (P,), or a slice of all.

        Returns:
            The mean, NaN where nothing is expected, and the strength, shape (P,) each: how many
            responses the mean counts as, 0 where nothing is known of the prompt itself.
        """

    @abstractmethod
    def learn(self, indices: Indices, correct: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
        """Learn how many responses of some prompts, each given once, were correct.

        Args:
            indices: Which prompts, shape (P,).
            correct: Correct responses of each, shape (P,).
            drawn: All responses of each, at least 1, shape (P,).
        """

    def start_at(self, pass_rate: float) -> None:
        """Begin, before anything is learned, at the policy's pass rate; by default ignored.

        An evaluation measured it on other prompts.
        """
        return None

    def mean(self, indices: Indices | slice) -> Floats:
        """Return the expected pass rates alone, shape (P,)."""
        return _believed(self, indices)[0]

    def priors(self, indices: Indices | slice) -> NDArray[np.float64]:
        """Return α and β of a Beta distribution of each pass rate, shape (P, 2).

        By default the mean counts as `strength` responses on top of a flat prior.
        """
        return priors_around(*_believed(self, indices))

    def metrics(self) -> dict[str, float]:
        """Return figures worth plotting; by default none."""
        return {}

    def state_dict(self) -> State:
        """Return all that is needed to resume, flat, of arrays and scalars; copies of `kept`."""
        return states.state_of(self, self.kept)

    def load_state_dict(self, state: State) -> None:
        """Resume from a state; if nothing is kept, only from an empty one, with a warning.

        Raises:
            ValueError: The state does not fit; then nothing changes.
        """
        if not self.kept:
            states.refuse_or_warn(type(self).__name__, state)
        states.check_same(state, states.state_of(self, self.identity), "another belief")
        for value in states.values_in(self, self.kept, state):
            setattr(*value)


def _believed(belief: Belief, indices: Indices | slice) -> tuple[Floats, Floats]:
    given = indices if isinstance(indices, slice) else np.array(indices)  # a user's may write to it
    if type(belief).__module__.startswith("rollwise."):  # tests check ours, in their precision
        return belief.believe(given)
    total = len(range(belief.total)[indices] if isinstance(indices, slice) else indices)
    wanted = "two arrays of shape (P,), the means (0 to 1, or NaN) and the strengths (from 0)"
    limits, nan = (0, [[1.0], [np.inf]]), [[True], [False]]
    mean, strength = array_from(belief, "believe", wanted, [given], (2, total), limits, nan)
    return mean, strength


def priors_from(plugin: object, method: str, count: int, *given: Any) -> NDArray[Any]:
    """Ask a plug-in for `count` priors, shape (P, 2); a `PluginError` names a wrong answer."""
    wanted = f"an array of shape ({count}, 2) of α and β, finite and above 0"
    limits = np.finfo(float).smallest_subnormal, np.finfo(float).max
    return array_from(plugin, method, wanted, given, (count, 2), limits)


def beta_of(mean: NDArray[np.float64], strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return α and β of the Beta distribution of a mean and a strength, shape (P, 2)."""
    return strength[:, None] * np.stack([mean, 1.0 - mean], axis=1)


def priors_around(
    mean: Floats, strength: float | Floats = EXPECTATION_WEIGHT
) -> NDArray[np.float64]:
    """Return α = 1 + w·p̂ and β = 1 + w·(1 − p̂), shape (P, 2); 1 and 1 where p̂ is NaN.

    `strength` is w, the number of responses that p̂ counts as: one for all, or shape (P,).
    """
    weight = np.broadcast_to(np.asarray(strength, dtype=float), mean.shape)
    responses = beta_of(np.asarray(mean, dtype=float), weight)
    return 1.0 + np.where(np.isnan(responses), 0.0, responses)
