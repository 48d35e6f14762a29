"""Engines: from a draw to a response.

Importing this package loads no model library. To add an engine, write its file and its settings,
and register the settings in `ENGINES`.
"""

from rollwise.engines.batches import BatchEngine
from rollwise.engines.engine import FORMER, Engine
from rollwise.engines.episodes import EpisodeEngine, EpisodeLimits
from rollwise.engines.settings import (
    EngineInputs,
    EngineSettings,
    ServerSettings,
    TransformersSettings,
    VLLMSettings,
)
from rollwise.errors import PluginError
from rollwise.step.response import LostDraw, Response

ENGINES: dict[str, type[EngineSettings]] = {
    "transformers": TransformersSettings,
    "vllm": VLLMSettings,
    "server": ServerSettings,
}
"""What `engine.type` may be."""


def __getattr__(name: str) -> object:
    if name == "Completion":
        raise PluginError(FORMER)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ENGINES",
    "BatchEngine",
    "Engine",
    "EngineInputs",
    "EngineSettings",
    "EpisodeEngine",
    "EpisodeLimits",
    "LostDraw",
    "Response",
]
