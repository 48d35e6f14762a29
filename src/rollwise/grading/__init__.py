"""Response -> reward.

Importing this room loads no grading library: those are imported by the workers that use them.
"""

from rollwise.grading.exact import ExactGrader
from rollwise.grading.function import FunctionGrader
from rollwise.grading.grader import Grader
from rollwise.grading.mathematics import MathGrader

__all__ = ["ExactGrader", "FunctionGrader", "Grader", "MathGrader"]
