"""What the training loop needs from the place where a model is kept and updated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rollwise.models.building import Model
from rollwise.step import Example


class StepLearner(Protocol):
    """Updates a model, one step at a time.

    Attributes:
        updates: Updates made so far.
    """

    updates: int

    def learn(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make the updates of one step, and return their metrics."""

    def weights(self) -> Mapping[str, Any]:
        """Return what the backend's own engine accepts in `load_weights`."""

    def save(self, folder: Path) -> None:
        """Write what `load` needs into a checkpoint's folder."""

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint's folder; the caller sets `updates`."""


class Backend(Model, Protocol):
    """The place where a run's model is kept: this process, or a service."""

    @property
    def learner(self) -> StepLearner:
        """Updates the model."""
