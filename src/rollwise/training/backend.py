"""What the training loop asks of where a model is and learns, this machine or another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from rollwise.engines import Engine


@dataclass(frozen=True, slots=True)
class Example:
    """A response to be learnt from.

    Attributes:
        prompt: Token ids of the prompt.
        response: Token ids of the response, T of them.
        logprobs: The engine's log-probability of each, shape (T,).
        advantage: How much better it did than expected.
    """

    prompt: Sequence[int]
    response: Sequence[int]
    logprobs: NDArray[np.float32]
    advantage: float

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


class StepLearner(Protocol):
    """Changes a model, a step at a time.

    Attributes:
        updates: Updates made so far.
    """

    updates: int

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, and say how they went."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return what the backend's own engine takes over by `load_weights`."""
        ...

    def save(self, folder: Path) -> None:
        """Write into a checkpoint's folder what `load` needs."""
        ...

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint's folder; `updates` is set by who calls."""
        ...


class Backend(Protocol):
    """Where a run's model is, and what is made of it there."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens, prompt and response, that the model takes; None if unknown."""
        ...

    @property
    def learner(self) -> StepLearner:
        """Changes the model."""
        ...

    def make_engine(self) -> Engine:
        """Make what draws from the learner's model as it is now."""
        ...
