"""Grading by text, and what every grader has in common."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.grading import ExactGrader, FunctionGrader, Grader, MathGrader

GRADERS = [ExactGrader, MathGrader, lambda: FunctionGrader("operator:eq")]


@pytest.mark.parametrize(
    ("response", "answer", "reward"),
    [
        ("7 12 3 6=6", "6", 1.0),
        ("7 12 3 6=16", "6", 0.0),
        ("6", "6", 1.0),
        (" 6\n", "6 ", 1.0),
        ("1=2= 3 ", "3", 1.0),
        ("3=1=2", "3", 0.0),
        ("6=", "6", 0.0),
        ("6=", "", 1.0),
        ("", "6", 0.0),
        ("6.0", "6", 0.0),
    ],
)
def test_the_text_after_the_last_equals_sign_decides(response, answer, reward):
    with ExactGrader() as grader:
        assert grader.grade([response], [answer]).tolist() == [reward]


@given(before=st.text(), answer=st.text().filter(lambda text: "=" not in text))
def test_any_answer_is_correct_after_any_beginning(before, answer):
    with ExactGrader() as grader:
        assert grader.grade([f"{before}={answer}"], [answer]).tolist() == [1.0]
        assert grader.grade([f"{before}={answer}!"], [answer]).tolist() == [0.0]
        assert grader.failures == 0


@pytest.mark.parametrize("make", GRADERS, ids=["exact", "math", "function"])
def test_every_grader(make):
    with make() as grader:
        assert isinstance(grader, Grader)
        assert grader.failures == 0
        nothing = grader.grade([], [])
        assert (nothing.shape, nothing.dtype) == ((0,), np.float64)
        rewards = grader.grade(["1", "2", "3"], ("1", "3", "3"))
        assert rewards.tolist() == [1.0, 0.0, 1.0]
        assert (rewards.shape, rewards.dtype) == ((3,), np.float64)
        with pytest.raises(ValueError, match="got 2 responses and 1 answers"):
            grader.grade(["1", "2"], ["1"])
        with pytest.raises(TypeError, match=r"responses\[1\] must be a str, got int: 2"):
            grader.grade(["1", 2], ["1", "2"])
        with pytest.raises(TypeError, match=r"answers\[0\] must be a str, got NoneType"):
            grader.submit(["1"], [None])
        with pytest.raises(
            TypeError, match="responses must be a list of texts, got one text: '12'"
        ):
            grader.grade("12", ["1", "2"])
        assert [f.result() for f in grader.submit(["1", "2"], ["1", "3"])] == [1.0, 0.0]
        grader.close()
        grader.close()
