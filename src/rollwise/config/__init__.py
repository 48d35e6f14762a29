"""The settings of a run, declared once: `settings` says what there is, `reading` takes it in."""

from rollwise.config.reading import (
    add_settings,
    explain_unknown,
    make_config,
    read_toml,
    sections_of,
    setting_names,
)
from rollwise.config.settings import (
    BUILT_IN,
    AdvantageSettings,
    GradingSettings,
    GroupSettings,
    LearnerSettings,
    ModelSettings,
    ServerSettings,
    TrainConfig,
    VLLMSettings,
)
from rollwise.config.strategies import Section

__all__ = [
    "BUILT_IN",
    "AdvantageSettings",
    "GradingSettings",
    "GroupSettings",
    "LearnerSettings",
    "ModelSettings",
    "Section",
    "ServerSettings",
    "TrainConfig",
    "VLLMSettings",
    "add_settings",
    "explain_unknown",
    "make_config",
    "read_toml",
    "sections_of",
    "setting_names",
]
