"""Grading by comparing text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollwise.grading.grader import Grader, check_pairs


class ExactGrader(Grader):
    """Gives 1.0 to a response whose text after the last `=` is the answer, else 0.0.

    A response without `=` counts as a whole; white space around either text is ignored. For
    running sums: `7 12 3 6=6` is correct for the answer `6`.
    """

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        check_pairs(responses, answers)
        correct = [
            response.rpartition("=")[2].strip() == answer.strip()
            for response, answer in zip(responses, answers, strict=True)
        ]
        return np.array(correct, dtype=np.float64)
