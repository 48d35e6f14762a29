"""Held-out figures and their intervals."""

import numpy as np
import pytest
from scipy import stats

from rollwise.statistics import Estimate, Evaluation, estimates, mean_over_problems


def test_half_right_of_a_hundred_has_the_normal_interval():
    """The mean of 100 fair coins has a standard deviation of 0.05: 0.5 ± 1.96 · 0.05."""
    estimate = mean_over_problems([0.0, 1.0] * 50)
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == pytest.approx((0.402, 0.598), abs=0.015)


def test_the_interval_is_narrower_where_problems_are_alike():
    """Values 0.4 and 0.6 spread a fifth as much as 0 and 1 do."""
    estimate = mean_over_problems([0.4, 0.6] * 50)
    assert (estimate.low, estimate.high) == pytest.approx((0.4804, 0.5196), abs=0.003)


@pytest.mark.parametrize("count", [1, 10, 256])
def test_all_wrong_or_all_right_is_not_certain(count):
    """Clopper and Pearson: with no success in n, (1 − high)^n = 0.025."""
    bound = 1 - 0.025 ** (1 / count)
    wrong, right = mean_over_problems(np.zeros(count)), mean_over_problems(np.ones(count))
    assert (wrong.value, wrong.low, wrong.high) == pytest.approx((0, 0, bound))
    assert (right.value, right.low, right.high) == pytest.approx((1, 1 - bound, 1))


def test_problems_of_one_value_have_the_binomial_interval():
    exact = stats.binomtest(10, 40).proportion_ci(method="exact")
    assert mean_over_problems([0.25] * 40) == Estimate(0.25, exact.low, exact.high)


def test_the_interval_holds_the_truth_19_times_in_20():
    """Pass rates by Beta(½, ½), mean ½; 8 responses to each of 60 problems.

    Responses to one problem go together: an interval that took all 480 as independent would be
    half as wide, and hold the truth 2 times in 3.
    """
    rng = np.random.default_rng(0)
    rates_EP = rng.beta(0.5, 0.5, (200, 60))
    correct_EP = rng.binomial(8, rates_EP)
    found = [mean_over_problems(correct_P / 8, seed=e) for e, correct_P in enumerate(correct_EP)]
    held = np.mean([estimate.low <= 0.5 <= estimate.high for estimate in found])
    assert 0.9 <= held <= 0.98


def test_many_problems_are_resampled_in_portions(monkeypatch):
    values = np.random.default_rng(2).random(50)
    at_once = mean_over_problems(values)
    monkeypatch.setattr(estimates, "DRAWN_AT_ONCE", 50 * 700)
    portions = mean_over_problems(values)
    assert (portions.low, portions.high) == pytest.approx((at_once.low, at_once.high), abs=0.005)


def test_the_figures_of_known_counts():
    """avg@4 = (0 + 1 + 2 + 4) / 16; at least one of four is right for three of four problems."""
    found = Evaluation.of_counts([0, 1, 2, 4], k=4)
    assert found.avg_at_k.value == 7 / 16
    assert found.pass_at_k.value == 3 / 4
    assert found.avg_at_k.low < 7 / 16 < found.avg_at_k.high


def test_the_figures_are_named_by_their_k():
    figures = Evaluation.of_counts([8, 0, 3], k=8).as_json()
    assert list(figures) == ["avg@8", "pass@8"]
    assert all(list(figure) == ["value", "low", "high"] for figure in figures.values())
    assert all(type(x) is float for figure in figures.values() for x in figure.values())
    assert list(Evaluation.of_counts([1, 0], k=2).as_json()) == ["avg@2", "pass@2"]


def test_an_estimate_reads_as_a_figure_with_its_interval():
    assert str(Estimate(0.5, 0.4021, 0.5979)) == "0.500 [0.402, 0.598]"
