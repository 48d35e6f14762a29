"""Accuracy, pass@k and maj@k of policies, estimated from n responses to each problem."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling import pass_at_k
from rollwise.statistics.estimates import Estimate, mean_over_problems, paired_difference

SUBSETS = 400
"""maj@k averages over at most this many subsets of the responses to a problem."""


@dataclass(frozen=True, eq=False)
class ProblemResult:
    """The graded responses to one problem.

    Attributes:
        correct: Whether each of the n responses is correct, shape (n,), n ≥ 1.
        answers: The final answer of each response, "" for none; None if the grader's kind cannot
            tell answers apart.
        votes: What each response votes for, shape (n,): 0 for the correct answer, 1 and above for
            others, −1 for none; None before they are counted (`with_votes`).
    """

    key: str
    correct: NDArray[np.bool_]
    answers: Sequence[str] | None = None
    votes: NDArray[np.int64] | None = None
    level: int | None = None
    subject: str = ""

    @property
    def drawn(self) -> int:
        """The number of responses, n."""
        return len(self.correct)

    @property
    def pass_rate(self) -> float:
        """The share of responses that are correct."""
        return float(self.correct.mean())


def steps_of_k(samples: int) -> list[int]:
    """List 1, 2, 4, ... up to `samples`, and `samples` itself."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i <= samples]
    return powers if powers[-1] == samples else [*powers, samples]


def figures_at(results: Sequence[ProblemResult], k: int) -> dict[str, NDArray[np.float64]]:
    """Estimate, for each problem, what k responses would show; unbiased for n ≥ k responses.

    `pass`: at least one is correct. `all_correct`, `all_wrong`: the group has zero variance. `maj`,
    where votes are known: the most frequent answer is correct. Shape (P,) each.
    """
    drawn_P = np.array([result.drawn for result in results])
    correct_P = np.array([result.correct.sum() for result in results])
    passed_P = pass_at_k(drawn_P, correct_P, k)
    all_correct_P = 1 - pass_at_k(drawn_P, drawn_P - correct_P, k)
    found = {"pass": passed_P, "all_correct": all_correct_P, "all_wrong": 1 - passed_P}
    if all(result.votes is not None for result in results):
        rng = np.random.default_rng(k)
        found["maj"] = np.array([majority_at_k(result, k, rng) for result in results])
    return found


def majority_at_k(result: ProblemResult, k: int, rng: np.random.Generator) -> float:
    """Estimate the probability that the most frequent answer of k responses is correct.

    The mean over all subsets of k of the n responses, which is unbiased as pass@k is; over
    `SUBSETS` random ones if there are more. Ties are broken at random.
    """
    votes_G, n = result.votes, result.drawn
    if k == 1 or votes_G is None:
        return result.pass_rate
    if math.comb(n, k) <= SUBSETS:
        subsets_RK = np.array(list(itertools.combinations(range(n), k)))
    else:
        subsets_RK = np.argsort(rng.random((SUBSETS, n)), axis=1)[:, :k]
    one_hot_GC = votes_G[:, None] == np.arange(votes_G.max() + 1)
    counts_RC = one_hot_GC[subsets_RK].sum(axis=1)
    if counts_RC.shape[1] == 0:
        return 0.0
    top_R1 = counts_RC.max(axis=1, keepdims=True)
    winners_RC = (counts_RC == top_R1) & (top_R1 > 0)
    share_R = winners_RC[:, 0] / np.maximum(1, winners_RC.sum(axis=1))
    return float(share_R.mean())


def figures_of(results: Sequence[ProblemResult], samples: int) -> dict[str, Estimate]:
    """Average over problems: `avg@n`, and `pass@k`, `maj@k`, `all_correct@k`, `all_wrong@k`.

    A problem that lost draws counts only for k up to its number of responses.
    """
    found = {f"avg@{samples}": mean_over_problems([o.pass_rate for o in results])}
    for k in steps_of_k(samples):
        if counted := [result for result in results if result.drawn >= k]:
            for name, values in figures_at(counted, k).items():
                found[f"{name}@{k}"] = mean_over_problems(values)
    return found


def tables_of(results: Sequence[ProblemResult]) -> dict[str, dict[str, dict[str, Any]]]:
    """Average pass rates by level and by subject, where there are several of them."""
    found = {}
    for name in ("level", "subject"):
        groups: dict[Any, list[float]] = {}
        for result in results:
            if (value := getattr(result, name)) not in (None, ""):
                groups.setdefault(value, []).append(result.pass_rate)
        if len(groups) > 1:
            found[name] = {
                str(value): {"problems": len(rates), "avg": mean_over_problems(rates)}
                for value, rates in sorted(groups.items())
            }
    return found


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


def histogram(rates: NDArray[np.float64]) -> dict[str, int]:
    """Count pass rates by tenths; 0 and 1 have bars of their own."""
    tenths = np.clip(np.ceil(np.round(rates * 10, 9)).astype(int), 1, 10)
    inner = (rates > 0) & (rates < 1)
    names = [f"({i / 10:g}, {(i + 1) / 10:g}{')' if i == 9 else ']'}" for i in range(10)]
    bars = {name: int((inner & (tenths == i)).sum()) for i, name in enumerate(names, 1)}
    return {"0": int((rates == 0).sum()), **bars, "1": int((rates == 1).sum())}


def as_json(value: Any) -> Any:
    """Replace estimates at any depth of mappings by `{"value", "low", "high"}`."""
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return vars(value) if isinstance(value, Estimate) else value
