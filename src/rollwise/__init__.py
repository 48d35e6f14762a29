"""Which prompts to sample, and how many responses each deserves, in RL with verifiable rewards."""

from importlib.metadata import version

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
    Streamed,
    advantages,
    has_zero_variance,
    pass_at_k,
    select_group,
)

__version__ = version("rollwise")

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
    "RolloutSession",
    "Rounds",
    "Schedule",
    "Streamed",
    "Uniform",
    "Worth",
    "__version__",
    "advantages",
    "has_zero_variance",
    "pass_at_k",
    "select_group",
]
