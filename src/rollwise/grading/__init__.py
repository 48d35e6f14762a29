"""Response -> reward.

Importing this room loads no grading library: those are imported by the workers that use them.
"""

from rollwise.grading.adapters import as_compute_score, as_reward_function
from rollwise.grading.code import CodeGrader
from rollwise.grading.environment import EnvironmentGrader
from rollwise.grading.exact import ExactGrader
from rollwise.grading.function import FunctionGrader
from rollwise.grading.grader import Grader
from rollwise.grading.mathematics import MathGrader

__all__ = [
    "CodeGrader",
    "EnvironmentGrader",
    "ExactGrader",
    "FunctionGrader",
    "Grader",
    "MathGrader",
    "as_compute_score",
    "as_reward_function",
]
