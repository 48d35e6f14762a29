"""Where a model is kept and updated: the settings of a backend, and of the built-in one.

Light to import: what a backend needs is imported when it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rollwise.sampling.checks import at_least

if TYPE_CHECKING:
    from rollwise.config import TrainConfig
    from rollwise.training.backend import Backend


class BackendSettings:
    """Base class of the backends that `backend.type` can name.

    A subclass is a frozen dataclass, whose fields are the backend's settings. Write `open`.

    Attributes:
        defaults: Section -> setting -> its default where this backend is chosen, for settings of
            other sections. It counts for the backends that come with rollwise, not for plug-ins.
    """

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @property
    def steps_ahead(self) -> int:
        """How many steps may be drawn before the updates of earlier ones are made."""
        return 0

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> "Backend":
        """Make the backend of a run.

        Args:
            config: All settings of the run; `config.backend` has these.
            checkpoint: The folder of the checkpoint to resume from, if any.

        Raises:
            RollwiseError: Something is missing, or a setting cannot be followed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LocalSettings(BackendSettings):
    """In this process, with the engine beside it."""

    max_steps_off_policy: int = field(
        default=0,
        metadata={
            "help": "How many steps' updates may be missing from the weights that draw a step: it "
            "is drawn, by a copy of the model, while earlier steps are learned from; 0 learns from "
            "each step before the next is drawn."
        },
    )

    def __post_init__(self) -> None:
        at_least("max_steps_off_policy", self.max_steps_off_policy, 0)

    @property
    def steps_ahead(self) -> int:
        """How many steps may be drawn before the updates of earlier ones are made."""
        return self.max_steps_off_policy

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> "Backend":
        """Load the model, and make its learner."""
        from rollwise.training.local import LocalBackend

        return LocalBackend(config, checkpoint)
