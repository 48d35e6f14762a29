"""avg@n, pass@k and maj@k with intervals, and paired comparisons of models and methods."""

from rollwise.statistics.answers import final_answers, with_votes
from rollwise.statistics.estimates import (
    Estimate,
    binomial_intervals,
    evaluation,
    mean_over_problems,
    paired_difference,
)
from rollwise.statistics.figures import (
    ProblemResult,
    as_json,
    compare,
    figures_of,
    histogram,
    steps_of_k,
    tables_of,
)

__all__ = [
    "Estimate",
    "ProblemResult",
    "as_json",
    "binomial_intervals",
    "compare",
    "evaluation",
    "figures_of",
    "final_answers",
    "histogram",
    "mean_over_problems",
    "paired_difference",
    "steps_of_k",
    "tables_of",
    "with_votes",
]
