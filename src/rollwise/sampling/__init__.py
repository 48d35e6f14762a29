"""Which responses: how many each prompt deserves, and what is learnt from them.

NumPy and the standard library only; no input or output, no clock, no engine.
"""

from rollwise.sampling.allocation import GVM, Estimated
from rollwise.sampling.estimators import pass_at_k
from rollwise.sampling.exits import Balanced, ExitRule, FixedCount, GiveUp, PositiveFocused
from rollwise.sampling.objectives import advantages
from rollwise.sampling.pool import Pool, is_uniform
from rollwise.sampling.schedules import Rounds, Schedule, Streamed
from rollwise.sampling.selection import Group, select_group
from rollwise.sampling.session import Draw, RolloutSession, draw_seed

__all__ = [
    "GVM",
    "Balanced",
    "Draw",
    "Estimated",
    "ExitRule",
    "FixedCount",
    "GiveUp",
    "Group",
    "Pool",
    "PositiveFocused",
    "RolloutSession",
    "Rounds",
    "Schedule",
    "Streamed",
    "advantages",
    "draw_seed",
    "is_uniform",
    "pass_at_k",
    "select_group",
]
