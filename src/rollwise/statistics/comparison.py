"""Compare two models on the same problems."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollwise.sampling import pass_at_k
from rollwise.statistics.estimates import paired_difference
from rollwise.statistics.figures import ProblemResult, steps_of_k


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
    sides = [
        (np.array([each.drawn for each in side]), np.array([each.correct.sum() for each in side]))
        for side in (common, [others[result.key] for result in common])
    ]
    mine, theirs = (correct / drawn for drawn, correct in sides)
    found: dict[str, Any] = {
        "problems": len(common),
        "more_often": int((mine > theirs).sum()),
        "less_often": int((mine < theirs).sum()),
        "avg": paired_difference(mine, theirs),
    }
    for k in steps_of_k(min(int(drawn.min()) for drawn, _ in sides))[1:]:
        mine, theirs = (pass_at_k(drawn, correct, k) for drawn, correct in sides)
        found[f"pass@{k}"] = paired_difference(mine, theirs)
    return found
