"""The settings of the commands: gathered from the rooms that declare them, and read in."""

from rollwise.config.base import CommandConfig
from rollwise.config.choices import CHOICES, GradingSection
from rollwise.config.compare import CompareConfig
from rollwise.config.data import ENVIRONMENT
from rollwise.config.drawing import EvaluateConfig, PrepareConfig, pass_rate_range
from rollwise.config.learning import MICRO_BATCH_TOKENS, LearnerSettings
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, ModelSettings, ModelSource
from rollwise.config.plan import PlanConfig
from rollwise.config.reading import (
    make_config,
    make_settings,
    read_toml,
    sections_of,
    setting_names,
)
from rollwise.config.sections import Section, Variant
from rollwise.config.train import TrainConfig
from rollwise.engines.settings import ServerSettings, VLLMSettings

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
    "CHOICES",
    "ENVIRONMENT",
    "KINDS",
    "MICRO_BATCH_TOKENS",
    "CommandConfig",
    "CompareConfig",
    "EvaluateConfig",
    "GradingSection",
    "LearnerSettings",
    "ModelSettings",
    "ModelSource",
    "PlanConfig",
    "PrepareConfig",
    "Section",
    "ServerSettings",
    "TrainConfig",
    "VLLMSettings",
    "Variant",
    "make_config",
    "make_settings",
    "pass_rate_range",
    "read_toml",
    "sections_of",
    "setting_names",
]
