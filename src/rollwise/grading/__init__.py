"""Response -> reward.

Importing this package loads no grading library: the workers that use one import it. To add a
grader, write its file and its settings, and register the settings in `settings.GRADERS`.
"""

from rollwise.grading.code import CodeGrader
from rollwise.grading.environment import EnvironmentGrader, ReasoningGymGrader
from rollwise.grading.function import FunctionGrader, as_compute_score, as_reward_function
from rollwise.grading.grader import ExactGrader, Grader
from rollwise.grading.mathematics import MathGrader
from rollwise.grading.settings import GRADERS, GraderInputs, GraderSettings
from rollwise.grading.weighted import WeightedGrader

__all__ = [
    "GRADERS",
    "CodeGrader",
    "EnvironmentGrader",
    "ExactGrader",
    "FunctionGrader",
    "Grader",
    "GraderInputs",
    "GraderSettings",
    "MathGrader",
    "ReasoningGymGrader",
    "WeightedGrader",
    "as_compute_score",
    "as_reward_function",
]
