"""Functions as graders: their forms, the rows that they see, and several of them as one."""

import datetime

import numpy as np
import pytest

from rollwise import Score
from rollwise.grading import FunctionGrader, Grader, WeightedGrader
from rollwise.grading.function import UserFunction
from rollwise.grading.settings import FunctionSettings, GraderInputs

ROW = {
    "prompt": "1+2?",
    "messages": [{"role": "user", "content": "1+2?"}],
    "data_source": "sums",
    "extra_info": {"index": 7},
    "level": 2,
}


def verls(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info) == ("sums", {"index": 7})
    return {"score": float(solution_str == ground_truth), "acc": True}


def verls_any(solution_str, ground_truth, level, **more):
    assert (more["prompt"], level) == ("1+2?", 2)
    return float(solution_str == ground_truth)


def trls(prompts, completions, solution, level, **columns):
    assert (prompts, level, columns["data_source"]) == (["1+2?"], [2], ["sums"])
    return [float(c == s) for c, s in zip(completions, solution, strict=True)]


def trls_named(completions, truth):
    return [float(c == s) for c, s in zip(completions, truth, strict=True)]


async def trls_async(completions, truth, **columns):
    return trls(columns["prompts"], completions, truth, columns["level"], data_source=["sums"])


async def plain_async(response, answer):
    return float(response == answer)


def plain_row(text, reference, row):
    assert row == ROW
    return float(text == reference)


def plain_named(response, answer, level, prompt, *, messages, unknown=3):
    assert (level, prompt, messages, unknown) == (2, "1+2?", ROW["messages"], 3)
    return float(response == answer)


def plain_any(response, answer, **columns):
    assert columns == ROW
    return float(response == answer)


FORMS = [
    *(verls, verls_any, trls, trls_named, trls_async),
    *(plain_async, plain_row, plain_named, plain_any),
]


@pytest.mark.parametrize("function", FORMS)
def test_functions_of_all_forms_grade_and_see_the_row(function):
    grade = UserFunction("mine:f", function, ("solution", "truth"))
    row = ROW if "*" in grade.columns else {n: ROW[n] for n in grade.columns if n in ROW}
    assert (grade("3", "3", row), grade("4", "3", row)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "needed", "taken"),
    [
        ("completions, answer, level, steps=1", {"level"}, {"level", "steps", "prompt"}),
        ("solution_str, ground_truth, extra_info, topic", {"topic"}, {"extra_info", "topic"}),
        ("response, answer, prompt, level", {"level"}, {"prompt", "level"}),
        ("response, answer, row", set(), {"*"}),
        ("response, answer, level, **columns", {"level"}, {"level", "*"}),
    ],
)
def test_the_columns_that_a_function_takes_are_known(here, arguments, needed, taken):
    module = f"taking_{here.name}"
    (here / f"{module}.py").write_text(f"def f({arguments}): return [1.0]\n")
    with FunctionGrader(f"{module}:f") as grader:
        found = grader.columns
    assert {name for name, must in found.items() if must} == needed
    assert taken <= found.keys()


def test_a_column_of_the_data_comes_before_the_reference_of_that_name():
    """As TRL itself gives it."""
    grade = UserFunction("mine:f", lambda completions, solution: [solution == ["long"]])
    assert (grade("3", "3", {"solution": "long"}), grade("3", "long")) == (1.0, 1.0)


def test_what_json_cannot_say_of_a_row_reaches_a_function_as_lists_and_text(here):
    (here / "of_the_row.py").write_text(
        "def f(r, a, when, where): return (when, where) == ('2026-01-02', [1, 2])\n"
    )
    row = {"when": datetime.date(2026, 1, 2), "where": np.array([1, 2]), "not": object()}
    with FunctionGrader("of_the_row:f", workers=1) as grader:
        assert grader.grade(["3"], ["3"], [row]).tolist() == [1.0]


def test_a_dictionary_is_a_score_with_acc_and_parts(here):
    (here / "with_acc.py").write_text(
        "def f(r, a): return {'score': 0.3, 'acc': r == a, 'length': len(r), 'pred': r}\n"
    )
    with FunctionGrader("with_acc:f", workers=1) as grader:
        right, wrong = grader.scores(["3", "44"], ["3", "3"])
    assert (float(right), right.acc, right.parts) == (0.3, 1.0, {"length": 1.0})
    assert (float(wrong), wrong.acc, wrong.parts) == (0.3, 0.0, {"length": 2.0})


class Stated(Grader):
    def __init__(self, reward):
        self.given = reward

    async def reward(self, response, answer, row=None):
        return self.given


def test_weighted_rewards_are_added_up_and_one_of_them_says_what_is_correct():
    graders = {"right": Stated(1.0), "form": Stated(Score(0.5, 0.0, {"tags": 3.0}))}
    for correct, acc in (("right", 1.0), ("form", 0.0)):
        grader = WeightedGrader(graders, {"form": 0.2}, correct)
        [score] = grader.scores(["a"], ["b"])
        assert float(score) == pytest.approx(1.1) and score.acc == acc
        assert score.parts == {"right": 1.0, "form": 0.5, "form/tags": 3.0}
        assert grader.failures == 0


def test_a_response_on_which_two_of_several_graders_fail_counts_as_one_failure(here):
    (here / "failing_rarely.py").write_text(
        "def f(r, a): return {'score': 1} if r == a else None\n"
    )
    functions = {n: "failing_rarely:f" for n in "ab"} | {"c": "math"}
    inputs = GraderInputs(timeout=10.0, workers=1)
    with FunctionSettings(functions=functions, weights={"c": 4.0}).open(inputs) as grader:
        assert grader.grade(["3", "4", "3"], ["3", "3", ""]).tolist() == [6.0, 0.0, 0.0]
        assert grader.failures == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs function = .* or functions"),
        ({"function": "a:b", "functions": {"c": "a:b"}}, "needs function = .* or functions"),
        (
            {"functions": {"c": "maths"}},
            r"functions must be code, environment, exact, .* got c = 'maths'",
        ),
        ({"functions": {"acc": "math"}}, "other than `score` and `acc`"),
        ({"functions": {"c": "math"}, "weights": {"d": 1.0}}, r"one of functions \(c\), got d"),
        ({"functions": {"c": "math"}, "correct": "d"}, r"one of functions \(c\), got d"),
        ({"functions": {"c": "math"}, "weights": {"c": float("nan")}}, "weights must be finite"),
    ],
)
def test_functions_that_cannot_be_added_up_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        FunctionSettings(**given)
