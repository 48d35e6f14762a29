"""Engines: from a draw to a response.

Importing this package loads no model library. To add an engine, write its file and its settings,
and register the settings in `ENGINES`.
"""

from rollwise.engines.engine import Engine
from rollwise.engines.episodes import EpisodeEngine, EpisodeLimits
from rollwise.engines.settings import (
    EngineInputs,
    EngineSettings,
    ServerSettings,
    TransformersSettings,
    VLLMSettings,
)
from rollwise.step.outcomes import Completion, LostDraw, PlayedEpisode

ENGINES: dict[str, type[EngineSettings]] = {
    "transformers": TransformersSettings,
    "vllm": VLLMSettings,
    "server": ServerSettings,
}
"""What `engine.type` may be."""

__all__ = [
    "ENGINES",
    "Completion",
    "Engine",
    "EngineInputs",
    "EngineSettings",
    "EpisodeEngine",
    "EpisodeLimits",
    "LostDraw",
    "PlayedEpisode",
]
