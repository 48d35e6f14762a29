"""Two models on the same problems."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollwise.evaluation.estimates import paired_difference
from rollwise.evaluation.figures import Outcome, figures_at, steps_of_k


def compare(outcomes: Sequence[Outcome], baseline: Sequence[Outcome]) -> dict[str, Any]:
    """Compare two models on the problems that both were asked, problem by problem.

    Returns:
        `problems` in common; how many are solved `more_often` and `less_often` than by the
        baseline; the mean difference of `avg`, and of `pass@k` for the k that all of these problems
        have responses for, each an estimate: above 0 where the baseline is worse. Without a problem
        in common, `problems` alone.
    """
    others = {outcome.key: outcome for outcome in baseline}
    common = [outcome for outcome in outcomes if outcome.key in others]
    if not common:
        return {"problems": 0}
    theirs = [others[outcome.key] for outcome in common]
    mine, other = (np.array([o.pass_rate for o in side]) for side in (common, theirs))
    found: dict[str, Any] = {
        "problems": len(common),
        "more_often": int((mine > other).sum()),
        "less_often": int((mine < other).sum()),
        "avg": paired_difference(mine, other),
    }
    most = min(outcome.drawn for outcome in (*common, *theirs))
    for k in (k for k in steps_of_k(most) if k > 1):
        mine, other = (
            figures_at([_countable(o) for o in side], k)["pass"] for side in (common, theirs)
        )
        found[f"pass@{k}"] = paired_difference(mine, other)
    return found


def _countable(outcome: Outcome) -> Outcome:
    """Leave out the answers, which pass@k has no use for."""
    return Outcome(outcome.key, outcome.correct)
