"""Choice in proportion to what a response is worth."""

import numpy as np
import pytest

from rollwise.beliefs import Belief
from rollwise.prompts import Worth


class Known(Belief):
    """Knows the pass rates."""

    def __init__(self, pass_rates):
        super().__init__(len(pass_rates))
        self.pass_rates = np.array(pass_rates)

    def believe(self, indices):
        mean = self.pass_rates[indices]
        return mean, np.ones_like(mean)

    def learn(self, indices, correct, drawn):
        """Knows all already."""


def shares(sampler, asks=4000):
    found = [sampler.ask()[0] for _ in range(asks)]
    return np.bincount(found, minlength=len(sampler.keys)) / asks


def test_prompts_come_in_proportion_to_their_worth():
    """p(1 − p) is .09, .25, .16 for p = .1, .5, .8: shares of .9/5 + .1/3 and so on."""
    sampler = Worth(range(3), 1, belief=Known([0.1, 0.5, 0.8]))
    expected = 0.9 * np.array([0.09, 0.25, 0.16]) / 0.5 + 0.1 / 3
    assert shares(sampler) == pytest.approx(expected, abs=4 * (0.25 / 4000) ** 0.5)


@pytest.mark.parametrize(
    ("objective", "worth"),
    [("linear", [0.09, 0.25]), ("log", [9.0, 1.0]), ("sqrt", [0.225, 0.125]), ("arcsine", [1, 1])],
)
def test_the_worth_is_f_prime_squared_times_the_variance(objective, worth):
    """f′²·p(1 − p) at .1 and ½: for log (1 − p)/p, for √p (1 − p)/4, for arcsine 1."""
    sampler = Worth(range(2), 1, belief=Known([0.1, 0.5]), objective=objective)
    assert sampler.worth(slice(None)) == pytest.approx(worth)


def test_the_power_evens_out_and_exploration_reaches_all():
    known = Known([0.0, 0.5])
    assert Worth(range(2), 1, belief=known, power=0.0).worth(slice(None)).tolist() == [1.0, 1.0]
    assert shares(Worth(range(2), 1, belief=known))[0] > 0.03
