"""Environments: those of several turns, and those of the library `verifiers`.

`episodes.py` is the contract of the environments that draws are played in; register one of ours in
`ENVIRONMENTS`. The others are tasksets of `verifiers` as task and grader (`EnvironmentSource`).
Importing this package does not load the library.
"""

from rollwise.environments.calculator import Calculator
from rollwise.environments.episodes import (
    EpisodeEnvironment,
    Opening,
    Play,
    SingleTurn,
    Turn,
    checked_turn,
)
from rollwise.environments.source import EnvironmentSource

ENVIRONMENTS: dict[str, type[EpisodeEnvironment]] = {"none": SingleTurn, "calculator": Calculator}
"""What `episode.type` may be."""

__all__ = [
    "ENVIRONMENTS",
    "EnvironmentSource",
    "EpisodeEnvironment",
    "Opening",
    "Play",
    "SingleTurn",
    "Turn",
    "checked_turn",
]
