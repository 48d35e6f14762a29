"""The settings of the commands: gathered from the packages that declare them, and read in."""

from rollwise.config.base import CommandConfig
from rollwise.config.compare import CompareConfig
from rollwise.config.data import ENVIRONMENT, is_made
from rollwise.config.drawing import EvaluateConfig, PrepareConfig
from rollwise.config.learning import LearnerSettings
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, ModelSettings, ModelSource
from rollwise.config.plan import PlanConfig
from rollwise.config.reading import make_config, make_settings, read_toml
from rollwise.config.train import TrainConfig

KINDS: dict[str, type[CommandConfig]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "prepare": PrepareConfig,
    "compare": CompareConfig,
    "plan": PlanConfig,
}
"""The settings of each command that has some."""

__all__ = [
    "BUILT_IN",
    "BUILT_IN_NAMES",
    "ENVIRONMENT",
    "KINDS",
    "CommandConfig",
    "CompareConfig",
    "EvaluateConfig",
    "LearnerSettings",
    "ModelSettings",
    "ModelSource",
    "PlanConfig",
    "PrepareConfig",
    "TrainConfig",
    "is_made",
    "make_config",
    "make_settings",
    "read_toml",
]
