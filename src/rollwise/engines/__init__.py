"""Engines: from a draw to a response."""

from rollwise.engines.engine import Completion, Engine, LostDraw

__all__ = ["Completion", "Engine", "LostDraw"]
