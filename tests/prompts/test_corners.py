"""Published choices and allocations as corners of one rule, the worth of a response.

A response adds f′(p)²·E(r − b)² to the squared signal, where E(r − b)² = p(1 − p) + (p − b)²: with
a good baseline, b = p, f′(p)²·p(1 − p), which `Worth` computes; without one, b = 0, f′(p)²·p. The
noise of a step is least if draws are shared out in proportion to its square root (`power = 0.5`).
"""

import numpy as np
import pytest

from rollwise.beliefs import Belief, LatestPassRate
from rollwise.prompts import Posterior, Prioritized, Worth
from rollwise.sampling import GVM, Estimated

PASS_RATES = np.array([0.02, 0.07, 0.15, 0.33, 0.46, 0.55, 0.7, 0.85, 0.97])
MANY = 100_000
"""Draws a prompt, so that rounding to whole numbers does not show."""


class Exact(Belief):
    """Knows the pass rates, and is sure of them."""

    def __init__(self, pass_rates=PASS_RATES):
        super().__init__(len(pass_rates))
        self.pass_rates = np.array(pass_rates)

    def believe(self, indices):
        mean = self.pass_rates[indices]
        return mean, np.full_like(mean, 1e9)

    def learn(self, indices, correct, drawn):
        """Knows all already."""


def worth(objective, power=1.0, pass_rates=PASS_RATES):
    sampler = Worth(
        range(len(pass_rates)), 1, belief=Exact(pass_rates), objective=objective, power=power
    )
    return sampler.worth(slice(None))


def shares(values):
    return np.asarray(values) / np.sum(values)


def test_reinforce_ada_est_is_log_without_a_baseline():
    """f′²·p = 1/p, and its root 1/√p. A baseline takes a factor 1 − p off the square."""
    without = worth("log", power=0.5) / np.sqrt(1 - PASS_RATES)
    allocation = Estimated(mean_draws=MANY, maximum=MANY**2, epsilon=1e-12)
    assert shares(allocation.counts(PASS_RATES)) == pytest.approx(shares(without), rel=1e-3)


def test_for_hard_prompts_that_is_the_worth_itself():
    """Up to p = 0.05, √(1 − p) is within 3 %."""
    hard = np.array([0.005, 0.01, 0.02, 0.05])
    allocation = Estimated(mean_draws=MANY, maximum=MANY**2, epsilon=1e-12)
    found = shares(allocation.counts(hard))
    assert found == pytest.approx(shares(worth("log", 0.5, hard)), rel=0.03)


def test_gvm_is_the_same_where_all_gradients_are_as_long():
    without = worth("log", power=0.5) / np.sqrt(1 - PASS_RATES)
    allocation = GVM(mean_draws=MANY, maximum=MANY**2, alpha=0.0)
    assert shares(allocation.counts(PASS_RATES)) == pytest.approx(shares(without), rel=1e-3)


def test_gvm_is_the_worth_if_its_gradient_norm_is_what_a_baseline_leaves():
    """G = √(1 − p): what is left of r's spread, p, is p(1 − p)."""
    allocation = GVM(mean_draws=MANY, maximum=MANY**2, alpha=0.0)
    counts = allocation.counts(PASS_RATES, np.sqrt(1 - PASS_RATES))
    assert shares(counts) == pytest.approx(shares(worth("log", power=0.5)), rel=1e-3)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_posterior_takes_those_of_the_largest_linear_worth(count):
    """p(1 − p) = ¼ − (p − ½)², and MoPPS takes the smallest (θ − ½)²."""
    chosen = Posterior(range(9), count, belief=Exact()).ask()
    assert set(chosen) == set(np.argsort(-worth("linear"))[:count].tolist())


def test_a_high_power_takes_the_best_as_the_posterior_does():
    sampler = Worth(range(9), 3, belief=Exact(), power=300.0, exploration=1e-12)
    assert set(sampler.ask()) == set(Posterior(range(9), 3, belief=Exact()).ask())


def test_prioritized_sampling_is_sqrt():
    """f′²·p(1 − p) = (1 − p)/4, and Kimi k1.5 samples in proportion to 1 − s."""
    assert shares(worth("sqrt")) == pytest.approx(shares(1 - PASS_RATES))
    told = {"correct": [0, 2, 4, 6, 8], "drawn": [8] * 5}
    prioritized = Prioritized(range(5), 1)
    by_worth = Worth(range(5), 1, belief=LatestPassRate(5), objective="sqrt", exploration=1e-12)
    drawn = []
    for sampler in (prioritized, by_worth):
        sampler.tell(range(5), **told)
        drawn.append(np.bincount([sampler.ask()[0] for _ in range(4000)], minlength=5) / 4000)
    assert drawn[0] == pytest.approx(drawn[1], abs=4 * (2 * 0.25 / 4000) ** 0.5)


def test_uniform_choice_is_arcsine_or_power_0():
    assert shares(worth("arcsine")) == pytest.approx(np.full(9, 1 / 9))
    assert shares(worth("log", power=0.0)) == pytest.approx(np.full(9, 1 / 9))


@pytest.mark.parametrize("objective", ["linear", "log", "sqrt"])
def test_retiring_is_a_worth_that_vanishes_where_all_is_solved(objective):
    """It falls from ½ on, and linearly in 1 − p near 1: 0.001 there is a hundredth of 0.1."""
    rates = np.array([0.5, 0.7, 0.9, 0.95, 0.99, 0.999])
    found = worth(objective, pass_rates=rates)
    assert np.all(np.diff(found) < 0)
    assert found[-1] / found[2] == pytest.approx(0.01, rel=0.3)
