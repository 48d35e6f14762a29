"""Mathematics: how answers may be written, and MATH-500."""

import json
from pathlib import Path

import pytest

from rollwise.grading import MathGrader
from rollwise.grading.mathematics import verify_math

MATH500 = Path(__file__).parents[3] / "shared" / "data" / "math500.jsonl"


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout=20.0, workers=2) as grader:
        yield grader


@pytest.fixture(scope="module")
def math500():
    if not MATH500.exists():
        pytest.skip(f"needs the MATH-500 data at {MATH500}")
    return [json.loads(line) for line in MATH500.read_text().splitlines()]


def test_all_reference_solutions_of_math500_are_correct(grader, math500):
    assert len(math500) == 500
    solutions, answers = ([row[name] for row in math500] for name in ("solution", "answer"))
    rewards = grader.grade(solutions, answers)
    assert rewards.sum() == 500
    assert grader.failures == 0


def test_the_solutions_of_other_problems_are_incorrect(grader, math500):
    """Answers shifted by one; `x=5` after `5` is the same answer."""
    answers = [row["answer"] for row in math500]
    shifted = answers[1:] + answers[:1]
    rewards = grader.grade([row["solution"] for row in math500], shifted)
    same = [
        a.removeprefix("x=") == b.removeprefix("x=") for a, b in zip(answers, shifted, strict=True)
    ]
    assert sum(same) < 20
    assert rewards[[not it for it in same]].sum() == 0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{0.5}$", r"\frac{1}{2}"),
        (r"$\boxed{0.5}$", "1/2"),
        (r"\boxed{\dfrac12}", r"$\frac{1}{2}$"),
        (r"The answer is $\frac{1}{2}$.", r"\boxed{\frac{1}{2}}"),
        (r"so \(\tfrac{2}{4}\)", r"$\boxed{\frac{1}{2}}$"),
        (r"$\frac12$", r"\(\frac{1}{2}\)"),
        (r"$\frac12$", r"\[\frac{1}{2}\]"),
        (r"$\boxed{3\sqrt{13}}$", r"3\sqrt{13}"),
        (r"$\boxed{\text{Evelyn}}$", "Evelyn"),
        (r"$\boxed{Evelyn}$", r"\text{Evelyn}"),
        (r"$\boxed{1234}$", "1,234"),
        (r"$\boxed{18}$", "$18"),
        (r"$\boxed{18}$", r"\$18"),
        (r"$\boxed{50\%}$", "50%"),
        (r"$\boxed{5}$", "the answer is $5$"),
        (
            r"\boxed{\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}}",
            r"\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}",
        ),
        ("first $3$, then 7", "7"),
    ],
)
def test_forms_of_one_answer(response, answer):
    assert verify_math(response, answer) == 1.0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{3}$", r"3\sqrt{13}"),  # what a bare answer would be read as
        (r"$\boxed{10}$", "10^{10}"),
        (r"$\boxed{3}$", "4"),
        (r"\boxed{" + "(" * 5000, "4"),
        ("I do not know", "4"),
        ("", "4"),
    ],
)
def test_incorrect_responses(response, answer):
    assert verify_math(response, answer) == 0.0


def test_an_answer_that_says_nothing_is_a_failure_not_an_incorrect_response(caplog):
    with MathGrader(workers=1) as grader:
        assert grader.grade(["3", "", "3"], ["", " ", "3"]).tolist() == [0.0, 0.0, 1.0]
        assert grader.failures == 2
    assert "nothing can be read from the reference answer ''" in caplog.text


def test_a_power_tower_ends_at_the_limit_and_costs_only_itself(caplog):
    responses = [
        r"$\boxed{9^{9^{9^{9}}}}$",
        r"$\boxed{3}$",
        r"$\boxed{(10^{10})!}$",
        r"$\boxed{4}$",
    ]
    with MathGrader(timeout=1.0) as grader:
        assert grader.grade(responses, ["3"] * 4).tolist() == [0.0, 1.0, 0.0, 0.0]
        assert grader.failures == 2
        assert grader.grade(["3"], ["3"]).tolist() == [1.0]
    assert caplog.text.count("longer than 1 s") == 1
