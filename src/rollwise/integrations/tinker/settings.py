"""The settings of Tinker as a backend. Light to import: the SDK is imported when it is opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rollwise.sampling.checks import Above0
from rollwise.training.build import BackendSettings

if TYPE_CHECKING:
    from rollwise.config import TrainConfig
    from rollwise.training.build import Backend

KEY = "TINKER_API_KEY"
"""The environment variable that holds the key."""


@dataclass(frozen=True)
class TinkerSettings(BackendSettings):
    """At Tinker, which draws too; address and key come from the environment."""

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"model": {"lora_rank": 32}}

    base_model: str = ""
    """The model's name on Tinker, if it is not `model.path`."""
    loss: Literal["ppo", "importance_sampling"] = "ppo"
    """`ppo`: clipped by `learner.clip_low` and `clip_high`; `importance_sampling`: not clipped."""
    draw_timeout: Above0 = 3600.0
    """Seconds for one response, including the wait in Tinker's queue; a response that takes longer
    is retried a few times."""

    def open(self, config: "TrainConfig", checkpoint: Path | None) -> "Backend":
        """Sign in to Tinker; see `TinkerBackend`."""
        from rollwise.integrations.tinker.backend import TinkerBackend

        return TinkerBackend(config, checkpoint)
