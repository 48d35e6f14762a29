"""Grading by text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.grading import ExactGrader


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
