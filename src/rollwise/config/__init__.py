"""The settings of the commands: gathered from the rooms that declare them, and read in."""

from rollwise.config.base import CommandConfig
from rollwise.config.choices import CHOICES, EngineSection, GradingSection
from rollwise.config.compare import CompareConfig
from rollwise.config.data import ENVIRONMENT, ReadingSettings
from rollwise.config.drawing import DrawConfig, EvaluateConfig, PassRateRange, PrepareConfig
from rollwise.config.group import GroupSettings
from rollwise.config.learning import MICRO_BATCH_TOKENS, LearnerSettings
from rollwise.config.model import BUILT_IN, BUILT_IN_NAMES, TOOL_SUMS, ModelSettings, ModelSource
from rollwise.config.plan import PassRateSettings, PlanConfig, PriceSettings
from rollwise.config.reading import (
    explain_unknown,
    make_config,
    make_settings,
    plugins_in,
    read_toml,
    sections_of,
    setting_names,
    with_plugins,
)
from rollwise.config.sections import Chosen, Section
from rollwise.config.train import TrainConfig
from rollwise.engines.settings import ServerSettings, VLLMSettings

__all__ = [
    "BUILT_IN",
    "BUILT_IN_NAMES",
    "CHOICES",
    "ENVIRONMENT",
    "MICRO_BATCH_TOKENS",
    "TOOL_SUMS",
    "Chosen",
    "CommandConfig",
    "CompareConfig",
    "DrawConfig",
    "EngineSection",
    "EvaluateConfig",
    "GradingSection",
    "GroupSettings",
    "LearnerSettings",
    "ModelSettings",
    "ModelSource",
    "PassRateRange",
    "PassRateSettings",
    "PlanConfig",
    "PrepareConfig",
    "PriceSettings",
    "ReadingSettings",
    "Section",
    "ServerSettings",
    "TrainConfig",
    "VLLMSettings",
    "explain_unknown",
    "make_config",
    "make_settings",
    "plugins_in",
    "read_toml",
    "sections_of",
    "setting_names",
    "with_plugins",
]
