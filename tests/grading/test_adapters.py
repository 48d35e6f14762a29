"""Graders in the forms of verl and TRL, and functions in those forms as graders."""

import pytest

from rollwise.grading import ExactGrader, as_compute_score, as_reward_function
from rollwise.grading.function import of_a_pair


def test_a_grader_as_verls_compute_score():
    compute_score = as_compute_score(ExactGrader())
    assert compute_score("math", "1 2=3", "3", {"index": 1}) == 1.0
    arguments = {"data_source": "math", "solution_str": "4", "ground_truth": "3"}
    assert compute_score(**arguments, extra_info=None, more=1) == 0.0


@pytest.mark.parametrize(
    "completions",
    [
        ["1 2=3", "4"],
        [[{"role": "assistant", "content": "1 2=3"}], [{"role": "assistant", "content": "4"}]],
        [
            [{"role": "assistant", "content": [{"type": "text", "text": "1 2=3"}]}],
            [{"role": "tool", "content": "3"}, {"role": "assistant", "content": "4"}],
        ],
    ],
    ids=["texts", "messages", "parts"],
)
def test_a_grader_as_trls_reward_function(completions):
    reward = as_reward_function(ExactGrader(), answer_column="truth")
    assert reward.__name__ == "ExactGrader"
    assert reward(prompts=["?", "?"], completions=completions, truth=["3", "3"]) == [1.0, 0.0]


def test_a_missing_column_is_named():
    reward = as_reward_function(ExactGrader())
    with pytest.raises(ValueError, match="needs a column 'answer'; it has level, solution"):
        reward(prompts=["?"], completions=["3"], solution=["3"], level=[1])


def verls(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info) == ("", {})
    return {"score": float(solution_str == ground_truth), "acc": True}


def trls(prompts, completions, solution, **columns):
    assert prompts == [""]
    return [float(c == s) for c, s in zip(completions, solution, strict=True)]


def trls_named(completions, truth):
    return [float(c == s) for c, s in zip(completions, truth, strict=True)]


@pytest.mark.parametrize("function", [verls, trls, trls_named])
def test_functions_of_other_forms_grade(function):
    grade = of_a_pair(function)
    assert (grade("3", "3"), grade("4", "3")) == (1.0, 0.0)
