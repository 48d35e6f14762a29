"""Which responses: how many each prompt deserves, and what is learned from them.

NumPy and the standard library only; no input or output, no clock, no engine.
"""

from rollwise.sampling.allocation import ALLOCATIONS, GVM, Allocation, Estimated
from rollwise.sampling.draws import Draw, draw_seed
from rollwise.sampling.estimators import pass_at_k
from rollwise.sampling.exits import EXIT_RULES, Balanced, ExitRule, FixedCount, PositiveFocused
from rollwise.sampling.objectives import OBJECTIVES, Objective, advantages
from rollwise.sampling.pool import Pool, has_zero_variance
from rollwise.sampling.schedules import SCHEDULES, Rounds, Schedule, Streamed
from rollwise.sampling.score import Score
from rollwise.sampling.selection import Group, select_group
from rollwise.sampling.session import RolloutSession

__all__ = [
    "ALLOCATIONS",
    "EXIT_RULES",
    "GVM",
    "OBJECTIVES",
    "SCHEDULES",
    "Allocation",
    "Balanced",
    "Draw",
    "Estimated",
    "ExitRule",
    "FixedCount",
    "Group",
    "Objective",
    "Pool",
    "PositiveFocused",
    "RolloutSession",
    "Rounds",
    "Schedule",
    "Score",
    "Streamed",
    "advantages",
    "draw_seed",
    "has_zero_variance",
    "pass_at_k",
    "select_group",
]
