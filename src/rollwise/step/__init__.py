"""One training step, written once: ask, draw, choose groups, compute advantages, tell, measure.

The built-in trainer, TRL, verl, slime and Tinker all take their steps here. NumPy only.
"""

from rollwise.step.episodes import Episode, Example, Span, Usage
from rollwise.step.groups import TrainedGroup, make_group
from rollwise.step.outcomes import (
    Completion,
    LostDraw,
    Outcome,
    PlayedEpisode,
    Prompts,
    Result,
    RolloutCost,
)
from rollwise.step.recipe import SINGLE_RESPONSES, StepRecipe
from rollwise.step.rollouts import RollOut, Rollouts, draw_rollouts
from rollwise.step.session import grade_with, run_session
from rollwise.step.step import Step, learn_from, take_step

__all__ = [
    "SINGLE_RESPONSES",
    "Completion",
    "Episode",
    "Example",
    "LostDraw",
    "Outcome",
    "PlayedEpisode",
    "Prompts",
    "Result",
    "RollOut",
    "RolloutCost",
    "Rollouts",
    "Span",
    "Step",
    "StepRecipe",
    "TrainedGroup",
    "Usage",
    "draw_rollouts",
    "grade_with",
    "learn_from",
    "make_group",
    "run_session",
    "take_step",
]
