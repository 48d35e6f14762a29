"""What data says of problems besides question and answer: columns that a belief may learn from."""

from collections.abc import Mapping, Sequence
from typing import Any

from rollwise.tasks.problem import Problem


def feature_columns(
    problems: Sequence[Problem], prompts: Mapping[str, Sequence[int]] | None = None
) -> dict[str, list[Any]]:
    """Return what is known about P problems before responses are drawn, as columns of P values.

    These are `source`, `subject`, `level`, `pass_rate`, `solution_length` in characters and, given
    the token ids of `prompts` by key, `prompt_tokens`, None where there is none; and the further
    columns that were read with the problems.
    """
    columns: dict[str, list[Any]] = {
        "source": [problem.source or None for problem in problems],
        "subject": [problem.subject or None for problem in problems],
        "level": [problem.level for problem in problems],
        "pass_rate": [smoothed(*problem.measured) for problem in problems],
        "solution_length": [len(problem.solution) or None for problem in problems],
    }
    if prompts is not None:
        columns["prompt_tokens"] = [len(prompts[problem.key]) for problem in problems]
    further = dict.fromkeys(name for problem in problems for name in problem.columns)
    known = {name: own for name, own in columns.items() if own.count(None) < len(own)}
    return columns | {name: [p.columns.get(name) for p in problems] for name in further} | known


def smoothed(correct: float, drawn: float) -> float | None:
    """Return a measured pass rate, (c + ½)/(n + 1); None if nothing was drawn."""
    return (correct + 0.5) / (drawn + 1.0) if drawn else None
