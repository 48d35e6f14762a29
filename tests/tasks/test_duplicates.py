"""Near duplicates: what is taken for one problem, and what is not."""

from string import ascii_lowercase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.tasks import Problem, make_running_sums, remove_near_duplicates
from rollwise.tasks.duplicates import _bands, _stretches, jaccard

QUESTION = "A train travels 120 miles in 2 hours. What is its average speed in miles per hour?"


def ask(question, answer="60"):
    return Problem.ask(question, answer)


@pytest.mark.parametrize(
    ("question", "again"),
    [
        (QUESTION, QUESTION.upper()),
        (QUESTION, QUESTION.replace(" ", "\n  ")),
        (QUESTION, QUESTION.replace("A train travels", "The train travels")),
        ("1", "1 "),
    ],
)
def test_another_layout_or_a_word_is_the_same_problem(question, again):
    first, second = ask(question), ask(again)
    found = remove_near_duplicates([first, second], 0.8)
    assert (found.problems, found.duplicates) == ([first], {second.key: first.key})


@pytest.mark.parametrize(
    ("question", "other", "answer"),
    [
        (QUESTION, QUESTION.replace("2 hours", "3 hours"), "60"),
        (QUESTION, QUESTION, "sixty"),
        (QUESTION, "What is 120 miles over 2 hours?", "60"),
        ("1", "2", "60"),
        ("?", "!", "60"),
    ],
)
def test_another_number_or_answer_or_wording_is_another_problem(question, other, answer):
    problems = [ask(question), ask(other, answer)]
    assert remove_near_duplicates(problems, 0.8).problems == problems


def test_an_instruction_that_all_share_makes_nothing_alike():
    below = "\n\nPlease reason step by step, and put your final answer within \\boxed{}. " * 5
    questions = [f"Let f be {word}. Is f(f(x)) odd?" for word in ("even", "odd", "wild")]
    filler = [f"Something else about the word {letter * 9}" for letter in ascii_lowercase[:20]]
    problems = [ask(q + below, "odd") for q in questions + filler]
    assert remove_near_duplicates(problems, 0.8).problems == problems
    few = remove_near_duplicates(problems[:3], 0.8)  # nothing can be known to be shared
    assert few.problems == problems[:1]


def test_sums_that_differ_are_kept():
    problems = make_running_sums(300)
    assert len(remove_near_duplicates(problems, 0.9).problems) == 300


@given(st.text(max_size=40), st.text(max_size=40))
def test_similarity_is_that_of_the_sets(first, second):
    a, b = _stretches(first), _stretches(second)
    assert jaccard(a, a) == 1
    assert jaccard(a, b) == jaccard(b, a)
    common = set(a.tolist()) & set(b.tolist())
    assert jaccard(a, b) == len(common) / len(set(a.tolist()) | set(b.tolist()))


def test_similar_sets_share_a_band_as_often_as_they_should():
    """At a similarity s with 1 − (1 − s⁴)^24: 0.78 at ½."""
    rng = np.random.default_rng(0)
    shared = 0
    for _ in range(300):
        values = rng.integers(2**62, size=400, dtype=np.uint64)
        first, second = values[:300], values[100:]  # 200 of 400 are in both
        shared += any(x == y for x, y in zip(_bands(first), _bands(second), strict=True))
    assert shared / 300 == pytest.approx(1 - (1 - 0.5**4) ** 24, abs=0.1)
