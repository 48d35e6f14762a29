"""What n responses to each problem say of a policy, at every k up to n."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.evaluation.estimates import Estimate, mean_over_problems
from rollwise.sampling import pass_at_k

SUBSETS = 400
"""The most subsets of the responses to a problem that maj@k is averaged over."""

_ABSTAINS = -1


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of the responses to one problem.

    Attributes:
        key: Of the problem.
        correct: Whether each of the n responses is correct, shape (n,), n ≥ 1.
        answers: What each says in the end, "" for nothing; None where it cannot be told.
        level: Of the problem, where it has one.
        subject: Of the problem, where it has one.
    """

    key: str
    correct: NDArray[np.bool_]
    answers: Sequence[str] | None = None
    level: int | None = None
    subject: str = ""

    @property
    def drawn(self) -> int:
        """Responses, n."""
        return len(self.correct)

    @property
    def pass_rate(self) -> float:
        """The share of them that is correct."""
        return float(self.correct.mean())


def steps_of_k(samples: int) -> list[int]:
    """List 1, 2, 4, ... up to `samples`, and `samples` itself."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i <= samples]
    return powers if powers[-1] == samples else [*powers, samples]


def figures_at(outcomes: Sequence[Outcome], k: int) -> dict[str, NDArray[np.float64]]:
    """Estimate, for each problem, what k responses would show; unbiased for n ≥ k responses.

    Returns:
        `pass`: at least one is correct. `all_correct` and `all_wrong`: a group without signal.
        `maj`, where answers can be told: the most frequent answer is correct. Shape (P,) each.
    """
    drawn_P = np.array([outcome.drawn for outcome in outcomes])
    correct_P = np.array([outcome.correct.sum() for outcome in outcomes])
    found = {
        "pass": pass_at_k(drawn_P, correct_P, k),
        "all_correct": 1 - pass_at_k(drawn_P, drawn_P - correct_P, k),
        "all_wrong": 1 - pass_at_k(drawn_P, correct_P, k),
    }
    if all(outcome.answers is not None for outcome in outcomes):
        rng = np.random.default_rng(k)
        found["maj"] = np.array([majority_at_k(outcome, k, rng) for outcome in outcomes])
    return found


def majority_at_k(outcome: Outcome, k: int, rng: np.random.Generator) -> float:
    """Estimate the probability that the most frequent answer of k responses is correct.

    The mean over all subsets of k among the n responses, unbiased as pass@k is; where there are
    more than `SUBSETS` of them, over so many random ones. Correct responses vote together, others
    by their answer, those without an answer not at all. Of answers that are equally frequent one
    is taken by chance.
    """
    if k == 1:
        return outcome.pass_rate
    votes_G = _votes(outcome)
    subsets_RK = _subsets(len(votes_G), k, rng)
    one_hot_GC = votes_G[:, None] == np.arange(votes_G.max() + 1)
    counts_RC = one_hot_GC[subsets_RK].sum(axis=1)
    if counts_RC.shape[1] == 0:
        return 0.0
    top_R1 = counts_RC.max(axis=1, keepdims=True)
    winners_RC = (counts_RC == top_R1) & (top_R1 > 0)
    share_R = winners_RC[:, 0] / np.maximum(1, winners_RC.sum(axis=1))
    return float(share_R.mean())


def _subsets(n: int, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose k of n, in every way or in some, shape (ways, k)."""
    if math.comb(n, k) <= SUBSETS:
        return np.array(list(itertools.combinations(range(n), k)))
    return np.argsort(rng.random((SUBSETS, n)), axis=1)[:, :k]


def _votes(outcome: Outcome) -> NDArray[np.int64]:
    """Number what is voted for: 0 the correct answer, from 1 the others, −1 nothing."""
    numbers: dict[str, int] = {}
    answers = outcome.answers or ()
    votes = [
        0 if correct else numbers.setdefault(answer, len(numbers) + 1) if answer else _ABSTAINS
        for correct, answer in zip(outcome.correct, answers, strict=True)
    ]
    return np.array(votes)


def figures_of(outcomes: Sequence[Outcome], samples: int) -> dict[str, Estimate]:
    """Average over problems: `avg@n`, and `pass@k`, `maj@k`, `all_correct@k`, `all_wrong@k`.

    A problem that lost draws counts for the k that it has responses for.
    """
    found = {f"avg@{samples}": mean_over_problems([o.pass_rate for o in outcomes])}
    by_k = {}
    for k in steps_of_k(samples):
        counted = [outcome for outcome in outcomes if outcome.drawn >= k]
        by_k[k] = figures_at(counted, k) if counted else {}
    for name in ("pass", "maj", "all_correct", "all_wrong"):
        for k, values in by_k.items():
            if name in values:
                found[f"{name}@{k}"] = mean_over_problems(values[name])
    return found


def tables_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, Any]]]:
    """Average pass rates by level and by subject, where problems have more than one of them."""
    ways: dict[str, Callable[[Outcome], Any]] = {
        "level": lambda outcome: outcome.level,
        "subject": lambda outcome: outcome.subject or None,
    }
    grouped = {name: _grouped(outcomes, way) for name, way in ways.items()}
    return {name: table for name, table in grouped.items() if len(table) > 1}


def _grouped(
    outcomes: Iterable[Outcome], way: Callable[[Outcome], Any]
) -> dict[str, dict[str, Any]]:
    groups: dict[Any, list[float]] = {}
    for outcome in outcomes:
        if way(outcome) is not None:
            groups.setdefault(way(outcome), []).append(outcome.pass_rate)
    return {
        str(name): {"problems": len(groups[name]), "avg": mean_over_problems(groups[name])}
        for name in sorted(groups)
    }


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Write estimates as `{"value", "low", "high"}`, however deep they are."""
    return {
        name: as_json(value)
        if isinstance(value, Mapping)
        else vars(value)
        if isinstance(value, Estimate)
        else value
        for name, value in values.items()
    }
