"""Evaluate a policy on problems it was not trained on: avg@n, pass@k, maj@k with intervals."""

from rollwise.evaluation.answers import final_answers
from rollwise.evaluation.comparison import compare
from rollwise.evaluation.estimates import (
    Estimate,
    Evaluation,
    binomial_intervals,
    mean_over_problems,
    paired_difference,
)
from rollwise.evaluation.figures import ProblemResult, as_json, figures_of, steps_of_k, tables_of

__all__ = [
    "Estimate",
    "Evaluation",
    "ProblemResult",
    "as_json",
    "binomial_intervals",
    "compare",
    "figures_of",
    "final_answers",
    "mean_over_problems",
    "paired_difference",
    "steps_of_k",
    "tables_of",
]
