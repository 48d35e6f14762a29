"""How good a policy is on problems that it was not trained on: figures with 95 % intervals."""

from rollwise.evaluation.answers import final_answers
from rollwise.evaluation.comparison import compare
from rollwise.evaluation.estimates import (
    Estimate,
    Evaluation,
    binomial_intervals,
    mean_over_problems,
    paired_difference,
)
from rollwise.evaluation.figures import Outcome, as_json, figures_of, steps_of_k, tables_of

__all__ = [
    "Estimate",
    "Evaluation",
    "Outcome",
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
