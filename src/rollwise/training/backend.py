"""What the training loop needs from the place where a model is kept and updated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from rollwise.engines import Engine
from rollwise.step import Example


class StepLearner(Protocol):
    """Updates a model, one step at a time.

    Attributes:
        updates: Updates made so far.
    """

    updates: int

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, and return their metrics."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return what the backend's own engine accepts in `load_weights`."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` needs into a checkpoint's folder."""
        ...

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint's folder; the caller sets `updates`."""
        ...


class Backend(Protocol):
    """The place where a run's model is kept: this process, or a service."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens, prompt and response, that the model takes; None if unknown."""
        ...

    @property
    def learner(self) -> StepLearner:
        """Updates the model."""
        ...

    def make_engine(self) -> Engine:
        """Make an engine that draws from the learner's current weights."""
        ...
