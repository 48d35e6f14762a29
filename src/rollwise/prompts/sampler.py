"""The contract of a prompt sampler: the methods that training calls, most with defaults."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.beliefs.belief import priors_around
from rollwise.beliefs.state import State, refuse_or_warn
from rollwise.sampling.checks import Checked
from rollwise.sampling.draws import Key


class PromptSampler(Checked, ABC):
    """Decides which prompts come next, and learns from their results.

    Training uses these methods alone. Write `ask` and `tell`; the rest have defaults that know
    nothing. A sampler that a settings file chooses is made as `Class(keys, batch_size, seed,
    **settings)`; `FixedSetSampler` provides that constructor, checks and a state.

    Example:
        >>> class InOrder(PromptSampler):
        ...     def __init__(self, keys, batch_size, seed=0):
        ...         self.queue, self.batch_size = list(keys), batch_size
        ...
        ...     def ask(self, count=None, exclude=()):
        ...         batch = [key for key in self.queue if key not in exclude]
        ...         return batch[: count or self.batch_size]
        ...
        ...     def tell(self, keys, correct, drawn):
        ...         told = set(keys)
        ...         self.queue.sort(key=lambda key: key in told)  # what was told goes to the end
    """

    @abstractmethod
    def ask(self, count: int | None = None, exclude: Collection[Key] = ()) -> list[Key]:
        """Choose prompts, each once.

        Args:
            count: How many; by default as many as a step takes.
            exclude: Prompts to leave out. If fewer than `count` remain, return fewer.
        """

    @abstractmethod
    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        """Learn how many of the responses drawn for each prompt were correct.

        The prompts need not be those that were asked.

        Args:
            keys: The prompts of a step, each once.
            correct: The number of correct responses of each, shape (P,), integers.
            drawn: The number of all responses of each, shape (P,); 0 if all were lost.
        """

    def start_at(self, pass_rate: float) -> None:
        """Learn, before the first `ask`, the policy's pass rate on others; by default ignored."""
        return None

    @property
    def exhausted(self) -> bool:
        """Whether no prompt is left to ask for, so that training ends; by default never."""
        return False

    def state_dict(self) -> State:
        """Return all that is needed to resume, flat, of arrays and scalars; by default nothing."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Resume from a state; by default only from an empty one, which starts over with a warning.

        Raises:
            ValueError: The state does not fit this sampler.
        """
        refuse_or_warn(type(self).__name__, state)

    def metrics(self) -> dict[str, float]:
        """Return figures worth plotting, the same names each time; by default none."""
        return {}

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return the pass rate expected of each prompt now, shape (P,); by default NaN: unknown."""
        return np.full(len(keys), np.nan)

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Return α and β of a Beta distribution of each prompt's pass rate now, shape (P, 2).

        By default an expected pass rate counts as 4 responses; where none is expected, α = β = 1.
        """
        return priors_around(self.expected_pass_rates(keys))
