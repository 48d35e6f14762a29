"""pass@k against counting all subsets."""

from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.sampling import pass_at_k


def counted(n: int, c: int, k: int) -> float:
    """The share of the k-subsets of n responses that hold at least one of the c correct ones."""
    subsets = list(combinations(range(n), k))
    return sum(min(subset) < c for subset in subsets) / len(subsets)


def test_the_contracts_example():
    """1 − C(13, 4)/C(16, 4) = 1 − 715/1820."""
    found = pass_at_k(drawn=16, correct=3, k=4)
    assert type(found) is float
    assert found == pytest.approx(1 - 715 / 1820, rel=1e-14)


@pytest.mark.parametrize("n", range(1, 9))
def test_equals_counting_all_subsets(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            assert pass_at_k(n, c, k) == pytest.approx(counted(n, c, k), abs=1e-14), (c, k)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("n", "k"), [(4, 4), (9, 1), (9, 4), (32, 8)])
def test_is_unbiased_for_a_number_fixed_beforehand(p, n, k):
    """Σ_c C(n, c) p^c (1 − p)^(n−c) · pass@k = 1 − (1 − p)^k."""
    correct = np.arange(n + 1)
    weights = np.array([comb(n, c) * p**c * (1 - p) ** (n - c) for c in correct])
    assert weights @ pass_at_k(n, correct, k) == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_arrays_of_any_shape_broadcast():
    drawn = np.array([[4], [8]])
    correct = np.array([0, 1, 4])
    found = pass_at_k(drawn, correct, k=3)
    assert found.shape == (2, 3)
    assert found == pytest.approx(np.array([[counted(n, c, 3) for c in correct] for n in (4, 8)]))
    assert pass_at_k([4, 8], [1, 1], 1).tolist() == [0.25, 0.125]
    assert pass_at_k([], [], 1).shape == (0,)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.int32, float])
def test_the_type_of_the_counts_does_not_matter(dtype):
    drawn, correct = np.array([16, 100], dtype), np.array([3, 2], dtype)
    assert pass_at_k(drawn, correct, 4).tolist() == pass_at_k([16, 100], [3, 2], 4).tolist()


@given(data=st.data(), n=st.integers(1, 200))
def test_grows_with_k_and_with_correct_responses(data, n):
    c = data.draw(st.integers(0, n))
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert values[0] == pytest.approx(c / n, abs=1e-15)
    assert values[-1] == float(c > 0)
    assert all(0 <= low <= high + 1e-12 <= 1 + 1e-12 for low, high in pairwise(values))
    k = data.draw(st.integers(1, n))
    assert np.all(np.diff(pass_at_k(n, np.arange(n + 1), k)) >= -1e-12)


def test_large_counts_do_not_overflow():
    """C(10000, 5000) is no float: with one correct, the chance to be among k is k/n."""
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused(k):
    with pytest.raises(ValueError, match=rf"^k must be at least 1, got {k}$"):
        pass_at_k(4, 2, k)


@pytest.mark.parametrize("k", [2.5, 2.0, None, True])
def test_k_must_be_an_integer(k):
    with pytest.raises(TypeError, match=r"^k must be an integer, got"):
        pass_at_k(4, 2, k)


def test_k_above_the_fewest_drawn_is_refused():
    with pytest.raises(ValueError, match=r"between 1 and the responses drawn \(4\), got 5"):
        pass_at_k([8, 4, 16], 2, 5)


@pytest.mark.parametrize("correct", [-1, 5, float("nan"), [0, 5]])
def test_counts_outside_what_was_drawn_are_refused(correct):
    with pytest.raises(ValueError, match=r"^correct must lie between 0 and drawn$"):
        pass_at_k(4, correct, 2)
