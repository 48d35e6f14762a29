"""Which prompts to sample, and how many responses each deserves, in RL with verifiable rewards."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rollwise.beliefs import Belief, DecayedBeta, LogitKalman
from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, PromptSampler, Uniform, Worth
from rollwise.sampling import (
    GVM,
    Balanced,
    Draw,
    Estimated,
    ExitRule,
    FixedCount,
    Group,
    Objective,
    Pool,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Schedule,
    Score,
    Streamed,
    advantages,
    has_zero_variance,
    pass_at_k,
    select_group,
)

if TYPE_CHECKING:  # pydantic and what else the commands need
    from rollwise.api import Result, StopRun, TrainResult, compare, evaluate, train

__version__: str


def __getattr__(name: str) -> Any:
    """Read the version, and import the commands, when they are first used."""
    if name == "__version__":  # reading it takes a tenth of the import
        from importlib.metadata import version

        return version("rollwise")
    if name in __all__:
        return getattr(import_module("rollwise.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CDAS",
    "GVM",
    "Balanced",
    "Belief",
    "Curriculum",
    "DecayedBeta",
    "Draw",
    "Estimated",
    "ExitRule",
    "FixedCount",
    "Group",
    "LogitKalman",
    "Objective",
    "Pool",
    "PositiveFocused",
    "Posterior",
    "Prioritized",
    "PromptSampler",
    "Result",
    "RolloutSession",
    "Rounds",
    "Schedule",
    "Score",
    "StopRun",
    "Streamed",
    "TrainResult",
    "Uniform",
    "Worth",
    "__version__",
    "advantages",
    "compare",
    "evaluate",
    "has_zero_variance",
    "pass_at_k",
    "select_group",
    "train",
]
