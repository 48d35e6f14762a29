"""pass@k against counting all subsets, unbiased estimates against walking all sequences."""

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import sessions
from hypothesis import example, given
from hypothesis import strategies as st

from rollwise.sampling import Balanced, ExitRule, FixedCount, PositiveFocused, Rounds, pass_at_k
from rollwise.sampling.estimators import unbiased_estimates
from rollwise.sampling.stopping import Stopping


@pytest.mark.parametrize("n", range(1, 9))
def test_equals_counting_all_subsets(n):
    """The share of the k-subsets of n responses that hold one of the c correct ones at least."""
    for k in range(1, n + 1):
        first = np.array([subset[0] for subset in combinations(range(n), k)])
        expected = [float(np.mean(first < c)) for c in range(n + 1)]
        assert pass_at_k(n, np.arange(n + 1), k) == pytest.approx(expected, abs=1e-12), k
        assert type(pass_at_k(n, n, k)) is float


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("n", "k"), [(4, 4), (9, 1), (9, 4), (32, 8)])
def test_is_unbiased_for_a_number_fixed_beforehand(p, n, k):
    """Σ_c C(n, c) p^c (1 − p)^(n−c) · pass@k = 1 − (1 − p)^k."""
    correct = np.arange(n + 1)
    weights = np.array([comb(n, c) * p**c * (1 - p) ** (n - c) for c in correct])
    assert weights @ pass_at_k(n, correct, k) == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_arrays_of_any_shape_broadcast():
    found = pass_at_k(np.array([[4], [8]]), np.array([0, 1, 4]), k=3)
    assert found == pytest.approx(np.array([[0, 3 / 4, 1], [0, 3 / 8, 1 - 4 / 56]]))
    assert pass_at_k([4, 8], [1, 1], 1).tolist() == [0.25, 0.125]
    assert pass_at_k([], [], 1).shape == (0,)


@pytest.mark.parametrize(
    ("drawn", "correct", "k", "error", "message"),
    [
        *((4, 2, k, ValueError, f"^k must be at least 1, got {k}$") for k in (0, -1)),
        *((4, 2, k, TypeError, "^k must be an integer, got") for k in (2.5, 2.0, None, True)),
        ([8, 4, 16], 2, 5, ValueError, r"between 1 and the responses drawn \(4\), got 5"),
        *(
            (4, correct, 2, ValueError, "^correct must lie between 0 and drawn$")
            for correct in (-1, 5, float("nan"), [0, 5])
        ),
    ],
)
def test_what_cannot_be_is_refused(drawn, correct, k, error, message):
    with pytest.raises(error, match=message):
        pass_at_k(drawn, correct, k)


@dataclass(frozen=True)
class At(ExitRule):
    """Stop at some counts, whatever is between them; a set has no hash, so nor has the rule."""

    states: set[tuple[int, int]]

    def satisfied(self, positives, negatives):
        pairs = zip(np.ravel(positives).tolist(), np.ravel(negatives).tolist(), strict=True)
        return np.reshape([pair in self.states for pair in pairs], np.shape(positives))


def single(rule, budget: int) -> Stopping:
    """The rule asked after every draw."""
    return Stopping(rule, Rounds(1, budget), budget)


def walked(stops: np.ndarray, budget: int):
    """P, P₁, P₁₀ and P₀₁ of each state, by walking all 2^B sequences of draws one by one."""
    counts = np.zeros((4, budget + 1, budget + 1))
    seen = set()
    for sequence in product((0, 1), repeat=budget):
        for drawn in range(budget + 1):
            begun = sequence[:drawn]
            state = sum(begun), drawn - sum(begun)
            if begun not in seen:
                seen.add(begun)
                begins = [True, begun[:1] == (1,), begun[:2] == (1, 0), begun[:2] == (0, 1)]
                counts[(slice(None), *state)] += begins
            if stops[state]:
                break
    return counts


WALKED = [
    single(PositiveFocused(1), 9),
    single(Balanced(2, 2), 9),
    single(Balanced(3, 1), 9),
    single(FixedCount(5), 9),
    Stopping(PositiveFocused(1), Rounds(3, 3), 9),
    Stopping(Balanced(1, 2), Rounds(4, 2), 8),
    single(At({(0, 1), (2, 1)}), 8),
    single(At({(1, 0), (1, 2), (0, 4)}), 8),
]


@pytest.mark.parametrize("stopping", WALKED, ids=str)
def test_estimates_are_ratios_of_numbers_of_sequences(stopping):
    """P₁₀ = P₀₁ but where one of them ends at its first draw; then the other one counts."""
    every, correct_first, mixed_first, mixed_second = walked(stopping.stops, stopping.budget)
    reached = (every > 0) & (np.add.outer(*[np.arange(stopping.budget + 1)] * 2) > 0)
    found = unbiased_estimates(stopping)
    assert (np.isfinite(found.pass_rate) == reached).all()
    assert (found.pass_rate[reached] == correct_first[reached] / every[reached]).all()
    two_seen = np.isfinite(found.variance)
    mixed = np.maximum(mixed_first, mixed_second)
    assert (found.variance[two_seen] == mixed[two_seen] / every[two_seen]).all()
    drawn_once = np.zeros_like(reached)
    drawn_once[[0, 1], [1, 0]] = True
    assert (two_seen == (reached & (~drawn_once | stopping.stops))).all()


def test_exact_far_beyond_what_a_float_counts():
    """There are about 1e153 sequences of 512 draws; the ratio is rounded once."""
    found = unbiased_estimates(single(FixedCount(512), 512))
    positives = np.arange(513)
    assert found.pass_rate[positives, 512 - positives].tolist() == (positives / 512).tolist()
    assert found.variance[200, 312] == 200 * 312 / (512 * 511)


@example(states={(0, 1), (1, 0)}, cut=2, p=0.5)
@given(
    states=st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12),
    cut=st.integers(2, 10),
    p=st.floats(0, 1),
)
def test_unbiased_for_any_rule_on_counts_and_wherever_it_is_cut_short(states, cut, p):
    """p(1 − p) needs a second draw: not both one correct and one incorrect draw may end it."""
    stopping = single(At(states - {(0, 0)}), 10)
    found = unbiased_estimates(stopping)
    ends = sessions.law(lambda state: stopping.stops[state] or sum(state) == cut, p)
    pass_rate, variance = (sum(w * table[end] for end, w in ends.items()) for table in found)
    assert pass_rate == pytest.approx(p, abs=1e-12)
    if not {(0, 1), (1, 0)} <= states:
        assert variance == pytest.approx(p * (1 - p), abs=1e-12)
    else:
        assert np.isnan(found.variance).all()
