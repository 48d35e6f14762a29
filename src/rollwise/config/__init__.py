"""The settings of the commands, declared once, and read in."""

from rollwise.config.base import CommandConfig
from rollwise.config.drawing import DrawConfig, EvaluateConfig, PassRateRange, PrepareConfig
from rollwise.config.reading import (
    add_settings,
    explain_unknown,
    make_config,
    make_settings,
    read_toml,
    sections_of,
    setting_names,
)
from rollwise.config.settings import (
    BUILT_IN,
    ENVIRONMENT,
    MICRO_BATCH_TOKENS,
    AdvantageSettings,
    EngineSettings,
    GradingSettings,
    GroupSettings,
    LearnerSettings,
    ModelSettings,
    ModelSource,
    ReadingSettings,
    ServerSettings,
    TinkerSettings,
    TrainConfig,
    VLLMSettings,
)
from rollwise.config.strategies import Section

__all__ = [
    "BUILT_IN",
    "ENVIRONMENT",
    "MICRO_BATCH_TOKENS",
    "AdvantageSettings",
    "CommandConfig",
    "DrawConfig",
    "EngineSettings",
    "EvaluateConfig",
    "GradingSettings",
    "GroupSettings",
    "LearnerSettings",
    "ModelSettings",
    "ModelSource",
    "PassRateRange",
    "PrepareConfig",
    "ReadingSettings",
    "Section",
    "ServerSettings",
    "TinkerSettings",
    "TrainConfig",
    "VLLMSettings",
    "add_settings",
    "explain_unknown",
    "make_config",
    "make_settings",
    "read_toml",
    "sections_of",
    "setting_names",
]
