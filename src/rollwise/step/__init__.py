"""One training step, written once: ask, draw, choose groups, compute advantages, tell, measure.

The built-in trainer, TRL, verl, slime and Tinker all take their steps here. NumPy only.
"""

from rollwise.step.groups import TrainedGroup, make_group
from rollwise.step.recipe import StepRecipe
from rollwise.step.response import Example, LostDraw, Prompts, Response, RolloutCost
from rollwise.step.rollouts import RollOut, Rollouts, draw_rollouts
from rollwise.step.session import draw_session, grade_with, run_session
from rollwise.step.step import Step, learn_from, take_step

__all__ = [
    "Example",
    "LostDraw",
    "Prompts",
    "Response",
    "RollOut",
    "RolloutCost",
    "Rollouts",
    "Step",
    "StepRecipe",
    "TrainedGroup",
    "draw_rollouts",
    "draw_session",
    "grade_with",
    "learn_from",
    "make_group",
    "run_session",
    "take_step",
]
