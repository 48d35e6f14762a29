"""Response -> reward.

Importing this package loads no grading library: the workers that use one import it. To add a
grader, write its file and its settings, and register the settings in `GRADERS`.
"""

from rollwise.grading.code import CodeGrader
from rollwise.grading.environment import EnvironmentGrader
from rollwise.grading.function import FunctionGrader, as_compute_score, as_reward_function
from rollwise.grading.grader import ExactGrader, Grader
from rollwise.grading.mathematics import MathGrader
from rollwise.grading.settings import (
    CodeSettings,
    EnvironmentGraderSettings,
    ExactSettings,
    FunctionSettings,
    GraderInputs,
    GraderSettings,
    MathSettings,
)

GRADERS: dict[str, type[GraderSettings]] = {
    "exact": ExactSettings,
    "math": MathSettings,
    "code": CodeSettings,
    "function": FunctionSettings,
    "environment": EnvironmentGraderSettings,
}
"""What `grading.type` may be."""

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
    "as_compute_score",
    "as_reward_function",
]
