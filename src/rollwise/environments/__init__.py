"""Environments: those of several turns, and those of the library `verifiers`.

`episodes.py` is the contract of an environment that a draw is played with; register one of ours in
`ENVIRONMENTS`. The others are environments of `verifiers` as task and grader. Importing this
package does not load the library.
"""

from rollwise.environments.calculator import Calculator
from rollwise.environments.environment import Environment, Question
from rollwise.environments.episodes import (
    EpisodeEnvironment,
    EpisodeLost,
    OfVerifiers,
    Opening,
    Play,
    SingleTurn,
    Turn,
)
from rollwise.environments.source import EnvironmentSource

ENVIRONMENTS: dict[str, type[EpisodeEnvironment]] = {
    "none": SingleTurn,
    "calculator": Calculator,
    "environment": OfVerifiers,
}
"""What `episode.type` may be."""

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "EnvironmentSource",
    "EpisodeEnvironment",
    "EpisodeLost",
    "Opening",
    "Play",
    "Question",
    "SingleTurn",
    "Turn",
]
