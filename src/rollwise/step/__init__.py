"""One training step, written once: ask, draw, choose groups, compute advantages, tell, measure.

The built-in trainer, TRL, verl and Tinker all take their steps here. NumPy only.
"""

from rollwise.step.carried import Carried
from rollwise.step.cost import RolloutCost
from rollwise.step.episodes import Episode, Price, Span
from rollwise.step.groups import Example, Response, TrainedGroup, make_group
from rollwise.step.recipe import StepRecipe
from rollwise.step.rollouts import RollOut, Rollouts, draw_rollouts
from rollwise.step.step import Step, take_step
from rollwise.step.supply import PromptSupply

__all__ = [
    "Carried",
    "Episode",
    "Example",
    "Price",
    "PromptSupply",
    "Response",
    "RollOut",
    "RolloutCost",
    "Rollouts",
    "Span",
    "Step",
    "StepRecipe",
    "TrainedGroup",
    "draw_rollouts",
    "make_group",
    "take_step",
]
