"""Mathematics: how answers may be written, and MATH-500."""

import itertools
import json
from pathlib import Path

import pytest

from rollwise.grading import MathGrader
from rollwise.grading.final_answers import bare_reference, boxed
from rollwise.grading.mathematics import _values_wanted, last_answer, verify_math

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


def test_all_reference_solutions_of_math500_are_correct_and_those_of_others_are_not(
    grader, math500
):
    """Of others: answers shifted by one; `x=5` after `5` is the same answer."""
    assert len(math500) == 500
    solutions, answers = ([row[name] for row in math500] for name in ("solution", "answer"))
    assert grader.grade(solutions, answers).sum() == 500
    shifted = answers[1:201]
    rewards = grader.grade(solutions[:200], shifted)
    plain = [answer.removeprefix("x=") for answer in answers[:201]]
    other = [a != b for a, b in itertools.pairwise(plain)]
    assert sum(other) > 190
    assert rewards[other].sum() == 0
    assert grader.failures == 0


@pytest.mark.parametrize(
    ("response", "answer", "verdict"),
    [
        (r"The answer is $\frac{1}{2}$.", r"\boxed{\frac{1}{2}}", 1.0),
        (r"so \(\tfrac{2}{4}\)", r"\(\frac{1}{2}\)", 1.0),
        (r"$\boxed{3\sqrt{13}}$", r"3\sqrt{13}", 1.0),
        (r"$\boxed{\text{Evelyn}}$", "Evelyn", 1.0),
        (r"$\boxed{18}$", r"\$18", 1.0),
        (r"$\boxed{5}$", "the answer is $5$", 1.0),
        (
            r"\boxed{\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}}",
            r"\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}",
            1.0,
        ),
        ("first $3$, then 7", "7", 1.0),
        (r"$\boxed{3}$", r"3\sqrt{13}", 0.0),  # what a bare answer would be read as
        (r"$\boxed{10}$", "10^{10}", 0.0),
        (r"\boxed{" + "(" * 5000, "4", 0.0),
        ("I do not know", "4", 0.0),
        ("", "4", 0.0),
    ],
)
def test_what_math_verify_is_asked(response, answer, verdict):
    assert verify_math(response, answer) == verdict


def test_an_answer_that_says_nothing_is_a_failure_not_an_incorrect_response(caplog):
    with MathGrader(workers=1) as grader:
        assert grader.grade(["3", "", "3"], ["", " ", "3"]).tolist() == [0.0, 0.0, 1.0]
        assert grader.failures == 2
    assert "nothing can be read from the reference answer ''" in caplog.text


BOMBS = {
    "tower": "9^{9^{9^{9}}}",
    "factorial": "(10^{10})!",
    "integer": "9" * 100_000,
    "decimals": "0." + "3" * 100_000,
    "round brackets": "(" * 100_000,
    "braces": "{" * 100_000,
    "fractions": r"\frac{" * 3000 + "1" + "}{2}" * 3000,
    "roots": r"\sqrt{" * 3000,
    "boxes": r"\boxed{" * 3000,
    "dollars": "$" * 100_000,
    "spaces": " " * 1_000_000,
    "a megabyte": "x" * 1_000_000,
    "phrases": "the final answer is " * 5000,
    "control characters": "".join(map(chr, range(32))) * 100,
    "surrogate": "\ud800",
    "definition": r"\def\a{\a\a}\a",
}


@pytest.fixture(scope="module")
def strict():
    """Ends what takes half a second."""
    with MathGrader(timeout=0.5, workers=2) as grader:
        yield grader


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_cost_their_own_reward_at_most(strict, bomb):
    responses = [boxed(bomb), f"$\\boxed{{{bomb}", f"the answer is ${bomb}$ 1", r"$\boxed{5}$", "5"]
    assert strict.grade(responses, ["5"] * 5).tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("response", "answer", "final"),
    [
        (r"first $\boxed{3}$, so $\boxed{5}$", "5", "5"),
        (r"first \boxed{3}, so \boxed{5}", "5", "5"),
        (r"\boxed{3}, \boxed{5}", "3", "5"),
        (r"$\boxed{5}$, as in case 2 with $n = 3$.", "5", "5"),
        (r"The final answer is $7$. I hope it is correct. \boxed{5}", "5", "5"),
        (r"$\fbox{3}$ it is", "3", "3"),
        (r"\boxed 5 is it", "5", "5"),
        (r"\boxed{\fbox{5} + 3}", "8", "{5} + 3"),
        (r"\boxed{\boxed{2}, 3}", "2, 3", "{2}, 3"),
        (r"$\boxed{50}$ percent", "50", r"50\%"),
        (r"$\boxed{50}\%$", "50", r"50\%"),
        (r"\boxed{50} % a comment", "50", "50"),
        (r"\boxed{5}, to be put into \boxed{}", "5", "5"),
        (r"\boxed{5} and then \boxed{cut off", "5", "5"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "-3, 2", "2, -3"),
        (r"$\boxed{2}$, again $\boxed{2}$", "2, 3", "2"),
        (r"$x = \boxed{7}$; so they are $\boxed{2, 3}$", "2, 3", "2, 3"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "(2, -3)", "-3"),
        (r"$\boxed{2}$ or $\boxed{-3}$", "1,525", "-3"),
        ("no box", "5", None),
        ("<answer> 7 </answer>, no, <answer>5</answer>", "5", "5"),
        (r"<answer>\boxed{5}</answer>", "5", "5"),
        (r"$\boxed{5}$, so $S = \left\{ 1 \right.$", "5", "5"),
        (r"$\boxed{\left\{ 1, 2 \right.}$", "5", r"\left\{ 1, 2 \right."),
        (r"\boxed{" + "x" * 2000 + "}", "5", None),
        (r"\boxed{5} " + r"\boxed{" * 100_000, "5", None),  # looked at only in part
    ],
)
def test_the_last_box_is_the_final_answer(response, answer, final):
    assert last_answer(response, answer) == final


@pytest.mark.parametrize(
    ("answer", "bare", "values"),
    [
        ("['2']", "2", 1),
        ('["2, 3"]', "2, 3", 2),
        ("['2', '3']", "['2', '3']", 1),
        (r"['$\\frac{1}{2}$']", r"$\frac{1}{2}$", 1),
        (r"['\frac{1}{2}']", r"\frac{1}{2}", 1),
        (r"so $\boxed{7}$ cm", "7", 1),
        ("1,525", "1,525", 1),
        ("1,2,3", "1,2,3", 3),
        ("(1,2), (3,4)", "(1,2), (3,4)", 2),
        ("[2]", "[2]", 1),
    ],
)
def test_what_a_reference_says(answer, bare, values):
    assert bare_reference(answer) == bare
    assert _values_wanted(answer) == values
