"""Graders in the forms that trainers call: verl's `compute_score`, TRL's reward functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rollwise.grading.grader import Grader

Message = Mapping[str, Any]


def as_compute_score(grader: Grader) -> Callable[..., float]:
    """Turn a grader into the function that verl calls for each response (`custom_reward_function`).

    It takes `(data_source, solution_str, ground_truth, extra_info)`, and ignores other keyword
    arguments. Several threads may call it at once.
    """

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> float:
        return float(grader.grade([solution_str], [ground_truth])[0])

    return compute_score


def as_reward_function(grader: Grader, answer_column: str = "answer") -> Callable[..., list[float]]:
    """Turn a grader into the function that TRL calls for a batch (`reward_funcs`).

    The reference answers are in the column `answer_column` of the data set.
    """

    def reward(
        prompts: Sequence[Any], completions: Sequence[str | Sequence[Message]], **columns: Any
    ) -> list[float]:
        if answer_column not in columns:
            names = ", ".join(sorted(columns)) or "none"
            raise ValueError(f"the data set needs a column {answer_column!r}; it has {names}")
        responses = [text_of(completion) for completion in completions]
        rewards: list[float] = grader.grade(responses, columns[answer_column]).tolist()
        return rewards

    reward.__name__ = type(grader).__name__  # which TRL's logs show
    return reward


def text_of(completion: str | Sequence[Message]) -> str:
    """Return the text of a completion, or of its last message."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
