"""Mathematics: how answers may be written, and MATH-500."""

import itertools
import json
from pathlib import Path

import pytest

from rollwise.answers.finding import boxed, final_answer, reference_answer
from rollwise.grading import MathGrader

MATH500 = Path(__file__).parents[3] / "shared" / "data" / "math500.jsonl"


@pytest.fixture(scope="module")
def math500():
    if not MATH500.exists():
        pytest.skip(f"needs the MATH-500 data at {MATH500}")
    return [json.loads(line) for line in MATH500.read_text().splitlines()]


def test_reference_solutions_of_math500_are_correct_and_those_of_others_are_not(math500):
    """Of others: answers shifted by one; `x=5` after `5` is the same answer."""
    solutions, answers = ([row[name] for row in math500] for name in ("solution", "answer"))
    plain = [answer.removeprefix("x=") for answer in answers[:201]]
    other = [a != b for a, b in itertools.pairwise(plain)]
    assert sum(other) > 190
    with MathGrader(timeout=20.0, workers=2) as grader:
        assert grader.grade(solutions, answers).sum() == len(math500) == 500
        assert grader.grade(solutions[:200], answers[1:201])[other].sum() == 0
        assert grader.failures == 0


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


def test_equal_answers_are_graded_once_and_each_counts(strict):
    """A failure is a failure of every response that has the answer."""
    failed, unanswered = strict.failures, strict.unanswered
    answers = [r"\frac{1}{2}", r"\int_0^{10^{10}} x^{x^{x}} dx", "0.5"] * 4
    responses = [f"in way {i}: {boxed(answer)}" for i, answer in enumerate(answers)]
    rewards = strict.grade([*responses, "<think>", ""], [r"\frac12"] * 14)
    assert rewards.tolist() == [1.0, 0.0, 1.0] * 4 + [0.0, 0.0]
    assert strict.failures in (failed, failed + 4)  # unless the machine is fast enough for it
    assert strict.unanswered == unanswered + 2
    assert (
        len({strict.submit(responses[0], "0.5") for _ in range(2)}) == 2
    )  # each has its own future


@pytest.mark.parametrize(
    ("response", "final"),
    [
        (r"first $\boxed{3}$, so $\boxed{5}$", "5"),
        (r"$\boxed{5}$, as in case 2 with $n = 3$.", "5"),
        (r"$\fbox{3}$ it is", "3"),
        (r"\boxed 5 is it", "5"),
        (r"\boxed{\boxed{2}, 3}", "{2}, 3"),
        (r"$\boxed{50}$ percent", r"50\%"),
        (r"\boxed{50} % a comment", "50"),
        (r"\boxed{5} and then \boxed{cut off", "5"),
        (r"The answer is 5, in a box \boxed{5", None),
        # Boxes side by side are one answer; those of a derivation are not.
        (r"$\boxed{2}$ or $\boxed{-3}$", "2, -3"),
        (r"$\boxed{k = 45} \quad \text{and} \quad \boxed{n = 2}$", "k = 45, n = 2"),
        (r"$x = \boxed{7}$; so they are $\boxed{2, 3}$", "2, 3"),
        (r"\boxed{" + "x" * 2000 + "}", None),
        (r"\boxed{5} " + r"\boxed{" * 100_000, None),  # looked at only in part
        # Thinking has no answer.
        (r"<think>\boxed{5}</think><answer>7</answer>", "7"),
        (r"<think>so \boxed{5}, but wait", None),
        (r"so \boxed{5}</think>The answer is $7$.", "7"),
        ("<answer> 7 </answer>, no, <answer>5</answer>", "5"),
        (r"<answer>\boxed{5}</answer>", "5"),
        # Without a box
        ("3+4=<<3+4=7>>7.\n#### 1,000\nThis took 3 steps.", "1,000"),
        ("The answer is (C).", "(C)"),
        ("**Answer:** C", "C"),
        ("The answer is x+1", "x+1"),
        ("The answer is (1,2).", "(1,2)"),
        ("Therefore, the answer is 1,234.5. I hope it is right.", "1,234.5"),
        (r"Final Answer: The final answer is $\frac12$. I hope it is correct.", r"\frac12"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("we get $x=3$ and so $y = 4$.", "y = 4"),
        ("The solutions are $x=2$ and $x=3$.", "x=2, x=3"),
        ("So she has 3 + 4 = 7 apples in all of her bags.", "7"),
        ("East", "East"),
        ("no box and no number in a long text that only tells how hard it was", None),
    ],
)
def test_the_final_answer(response, final):
    assert final_answer(response) == final


@pytest.mark.parametrize(
    ("answer", "bare"),
    [
        ('["2, 3"]', "2, 3"),
        ("['2', '3']", "2, 3"),
        (r"['\frac{1}{2}']", r"\frac{1}{2}"),
        (r"so $\boxed{7}$, which is all", "7"),
        ("3+4=<<3+4=7>>7.\n#### 7", "7"),
        ("the answer is $5$", "5"),
        ("[2]", "[2]"),
    ],
)
def test_what_a_reference_says(answer, bare):
    assert reference_answer(answer) == bare
