"""Which prompts to sample, and how many responses each deserves, in RL with verifiable rewards."""

from importlib.metadata import version

from rollwise.prompts import (
    CDAS,
    Curriculum,
    Posterior,
    Prioritized,
    PromptSampler,
    Retiring,
    Uniform,
)
from rollwise.sampling import (
    GVM,
    Balanced,
    Draw,
    Estimated,
    ExitRule,
    FixedCount,
    GiveUp,
    Group,
    Pool,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Schedule,
    Streamed,
    advantages,
    is_uniform,
    pass_at_k,
    select_group,
)

__version__ = version("rollwise")

__all__ = [
    "CDAS",
    "GVM",
    "Balanced",
    "Curriculum",
    "Draw",
    "Estimated",
    "ExitRule",
    "FixedCount",
    "GiveUp",
    "Group",
    "Pool",
    "PositiveFocused",
    "Posterior",
    "Prioritized",
    "PromptSampler",
    "Retiring",
    "RolloutSession",
    "Rounds",
    "Schedule",
    "Streamed",
    "Uniform",
    "__version__",
    "advantages",
    "is_uniform",
    "pass_at_k",
    "select_group",
]
