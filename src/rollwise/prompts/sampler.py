"""What the loop asks of a prompt sampler, and what else a sampler may offer."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwise.sampling.pool import Key

State = dict[str, "np.ndarray[Any, Any] | int | float | str"]
"""A sampler's state: flat, of arrays and scalars, so that it can be saved without pickle."""


class PromptSampler(Protocol):
    """Decides which prompts come next, and learns from what came of them."""

    def ask(self) -> list[Key]:
        """Choose the prompts of the next step, each once."""
        ...

    def tell(self, keys: Sequence[Key], correct: ArrayLike, drawn: ArrayLike) -> None:
        """Learn how many of the responses drawn for each prompt were correct, shape (P,) each."""
        ...

    def state_dict(self) -> State:
        """Return all that is needed to go on."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on from a state of a sampler over the same prompts."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return figures worth a plot."""
        ...


@runtime_checkable
class Forecaster(Protocol):
    """A sampler that also believes something about pass rates (optional)."""

    def expected_pass_rates(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Say what pass rate is expected of each prompt now, shape (P,); NaN where none is."""
        ...

    def pass_rate_priors(self, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Say what is believed of each pass rate now: α and β of a Beta distribution, shape (P, 2).

        Nothing is believed where both are 1.
        """
        ...
