"""Where a model is kept and updated: the settings of a backend, and of the built-in one.

Light to import: what a backend needs is imported when it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rollwise.config import TrainConfig
    from rollwise.training.backend import Backend


class BackendSettings:
    """Base class of the backends that `backend.type` can name.

    A subclass is a frozen dataclass, whose fields are the backend's settings. Write `open`.

    Attributes:
        defaults: Section -> setting -> its default where this backend is chosen, for settings of
            other sections. It applies to the backends that come with rollwise, not to plug-ins.
    """

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> "Backend":
        """Make the backend of a run.

        Args:
            config: All settings of the run; `config.backend` has these.
            checkpoint: The folder of the checkpoint to resume from, if any.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LocalSettings(BackendSettings):
    """In this process, with the engine beside it."""

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> "Backend":
        """Load the model, and make its learner."""
        from rollwise.training.local import LocalBackend

        return LocalBackend(config, checkpoint)
