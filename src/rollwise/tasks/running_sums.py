"""The built-in task: running sums, such as `7+5-9+3?`, answered `7 12 3 6=6`.

It is small enough for two cores and behaves like a real task: a model that was trained on noisy
demonstrations solves some problems always, some never and most sometimes, and can improve.
"""

import numpy as np

from rollwise.tasks.problem import Problem

SOURCE = "running-sums"
HELDOUT_SEED = 20_000_000
"""Held-out problems are the same everywhere: in every training run and as a benchmark."""


def make_terms(n_terms: int, rng: np.random.Generator) -> list[int]:
    """Draw `n_terms` one-digit terms; the first is not negative."""
    drawn = rng.integers(0, 10, n_terms) * rng.choice([-1, 1], n_terms)
    drawn[0] = abs(drawn[0])
    terms: list[int] = drawn.tolist()
    return terms


def write_question(terms: list[int], rng: np.random.Generator) -> str:
    """Write terms as a question: [7, 5, -9, 3] -> `7+5-9+3?` (a term of 0 gets either sign)."""
    signs = ["-" if term < 0 or (term == 0 and rng.random() < 0.5) else "+" for term in terms]
    rest = "".join(f"{sign}{abs(term)}" for sign, term in zip(signs[1:], terms[1:], strict=True))
    return f"{terms[0]}{rest}?"


def make_problems(
    count: int,
    min_terms: int = 2,
    max_terms: int = 10,
    seed: int = 0,
    excluded: frozenset[str] = frozenset(),
) -> list[Problem]:
    """Make `count` different problems, with each number of terms in the range equally often.

    The same arguments make the same problems; those whose keys are `excluded` (held-out ones, say)
    are left out. A `ValueError` says that the range is bad, or has not that many problems.
    """
    if not 2 <= min_terms <= max_terms:
        raise ValueError(f"terms must satisfy 2 ≤ min ≤ max, got {min_terms} and {max_terms}")
    too_many = f"there are not {count} different problems of {min_terms} to {max_terms} terms"
    if count > sum(10 * 20 ** (n_terms - 1) for n_terms in range(min_terms, max_terms + 1)):
        raise ValueError(too_many)
    rng = np.random.default_rng(seed)
    seen = set(excluded)
    problems: list[Problem] = []
    misses = 0
    while len(problems) < count:
        n_terms = min_terms + (len(problems) + misses) % (max_terms - min_terms + 1)
        terms = make_terms(n_terms, rng)
        question = write_question(terms, rng)
        problem = Problem.ask(question, str(sum(terms)), source=SOURCE, level=n_terms)
        if problem.key in seen:
            misses += 1
            if misses > 100 * count:
                raise ValueError(too_many)
            continue
        seen.add(problem.key)
        problems.append(problem)
    return problems
