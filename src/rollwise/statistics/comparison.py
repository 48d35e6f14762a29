"""Compare two models on the same problems."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollwise.statistics.estimates import paired_difference
from rollwise.statistics.figures import ProblemResult, figures_at, steps_of_k


def compare(results: Sequence[ProblemResult], baseline: Sequence[ProblemResult]) -> dict[str, Any]:
    """Compare two models on the problems that both were asked, problem by problem.

    Returns:
        `problems`: how many both have; `more_often` and `less_often`: how many are solved more and
        less often than by the baseline; `avg`, and `pass@k` for every k that all of these problems
        have responses for: estimates of the mean difference, above 0 where the baseline is worse.
        Without a common problem, `problems` alone.
    """
    others = {result.key: result for result in baseline}
    common = [result for result in results if result.key in others]
    if not common:
        return {"problems": 0}
    theirs = [others[result.key] for result in common]
    mine, other = (np.array([o.pass_rate for o in side]) for side in (common, theirs))
    found: dict[str, Any] = {
        "problems": len(common),
        "more_often": int((mine > other).sum()),
        "less_often": int((mine < other).sum()),
        "avg": paired_difference(mine, other),
    }
    most = min(result.drawn for result in (*common, *theirs))
    for k in (k for k in steps_of_k(most) if k > 1):
        mine, other = (
            figures_at([_countable(o) for o in side], k)["pass"] for side in (common, theirs)
        )
        found[f"pass@{k}"] = paired_difference(mine, other)
    return found


def _countable(result: ProblemResult) -> ProblemResult:
    """Leave out the answers, which pass@k does not need."""
    return ProblemResult(result.key, result.correct)
