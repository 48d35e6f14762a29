"""The built-in task: what it asks, and that its problems are different, right and repeatable."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwise.tasks import make_running_sums
from rollwise.tasks.running_sums import SOURCE


def read_terms(text):
    """The terms that a question shows, by other means than it was written."""
    assert re.fullmatch(r"\d([+-]\d)+\?", text)
    return [int(term) for term in re.findall(r"[+-]?\d", text)]


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 4), st.integers(0, 2**32), st.integers(0, 60))
def test_problems_are_different_and_answered_rightly(fewest, more, seed, count):
    problems = make_running_sums(count, fewest, fewest + more, seed)
    assert len(problems) == len({p.key for p in problems}) == count
    for problem in problems:
        (message,) = problem.messages
        terms = read_terms(message["content"])
        assert message["role"] == "user"
        assert (problem.answer, problem.level) == (str(sum(terms)), len(terms))
        assert fewest <= len(terms) <= fewest + more
        assert problem.source == SOURCE


def test_numbers_of_terms_are_spread_evenly():
    counts = Counter(problem.level for problem in make_running_sums(900, 4, 12))
    assert counts == dict.fromkeys(range(4, 13), 100)


def test_a_seed_names_its_problems_and_more_begin_with_the_same():
    assert make_running_sums(80, seed=3)[:50] == make_running_sums(50, seed=3)
    assert make_running_sums(50, seed=3) != make_running_sums(50, seed=4)


def test_all_problems_of_two_terms_can_be_had_and_no_more():
    # Ten first digits, then two signs and ten digits.
    assert len(make_running_sums(200, 2, 2)) == 200
    with pytest.raises(ValueError, match="not 1000000 different problems of 2 to 3 terms"):
        make_running_sums(10**6, 2, 3)


@pytest.mark.parametrize(("fewest", "most"), [(1, 5), (5, 4), (0, 0)])
def test_a_bad_range_is_refused(fewest, most):
    with pytest.raises(ValueError, match=f"got {fewest} and {most}"):
        make_running_sums(3, fewest, most)
