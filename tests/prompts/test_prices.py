"""What responses are expected to cost, and the choice by worth per token."""

import numpy as np
import pytest

from rollwise.beliefs import LogitKalman
from rollwise.prompts import Retiring, Worth
from rollwise.prompts.prices import TokenPrices
from rollwise.prompts.testing import FixedSetContract


class TestContract(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Worth(keys, batch_size, seed, worth_of="token")


def known(lengths):
    """Prices of prompts whose lengths have been seen often."""
    prices = TokenPrices(len(lengths))
    for _ in range(40):
        places = np.arange(len(lengths))
        prices.learn(places, 8 * np.array(lengths), np.full(len(lengths), 8))
    return prices


def test_before_anything_is_known_all_cost_alike():
    assert TokenPrices(3).of(slice(None)).tolist() == [1, 1, 1]


def test_the_first_responses_by_hand():
    """40 tokens in 4 responses: μ = 10. Two of the first prompt have 10 together: R = 1, N = 2 and
    ρ = (1 + 1)/(2 + 1). Two of the second have 30, ρ = (3 + 1)/(2 + 1). The third's ρ is 1."""
    prices = TokenPrices(3)
    prices.learn(np.array([0, 1]), np.array([10, 30]), np.array([2, 2]))
    assert prices.mean == 10
    assert prices.of(slice(None)) == pytest.approx([20 / 3, 40 / 3, 10])


def test_earlier_lengths_decay_in_units_of_the_mean_of_their_time():
    """A second step of the first prompt alone, 30 tokens in 2 responses. μ: 0.8·40 + 30 over
    0.8·4 + 2·⅔. R = 0.8·1 + 30/μ, N = 0.8·2 + 2."""
    prices = TokenPrices(3)
    prices.learn(np.array([0, 1]), np.array([10, 30]), np.array([2, 2]))
    prices.learn(np.array([0]), np.array([30]), np.array([2]))
    mean = 62 / (3.2 + 4 / 3)
    assert prices.mean == pytest.approx(mean)
    ratio = (0.8 + 30 / mean + 1) / (1.6 + 2 + 1)
    assert prices.of(np.array([0])) == pytest.approx([mean * ratio])


def test_known_lengths_are_approached():
    assert known([10, 20, 60]).of(slice(None)) == pytest.approx([10, 20, 60], rel=0.15)


def test_all_responses_becoming_longer_changes_no_ratio():
    prices = known([10, 30])
    before = prices.of(slice(None))
    prices.learn(np.array([0, 1]), 2 * 8 * np.array([10, 30]), np.array([8, 8]))
    after = prices.of(slice(None))
    assert after[1] / after[0] == pytest.approx(before[1] / before[0], rel=0.05)
    assert after.mean() > 1.1 * before.mean()


def test_choosing_short_ones_does_not_lower_the_mean():
    prices = known([10, 30])
    mean = prices.mean
    for _ in range(20):
        prices.learn(np.array([0]), np.array([80]), np.array([8]))
    assert prices.mean == pytest.approx(mean, rel=0.15)


def test_the_worth_of_a_token_is_that_of_a_response_over_its_length():
    sampler = Worth(range(3), 1, worth_of="token")
    for _ in range(40):
        sampler.tell_tokens([0, 1], tokens=[80, 320], responses=[8, 8])
    worth = sampler.worth(slice(None))
    assert worth[0] / worth[1] == pytest.approx(4, rel=0.15)


def test_without_a_price_lengths_change_nothing():
    sampler = Worth(range(3), 1)
    state = sampler.state_dict()
    sampler.tell_tokens([0, 1], tokens=[80, 320], responses=[8, 8])
    assert sampler.worth(slice(None)).tolist() == [0.25] * 3
    assert sampler.state_dict().keys() == state.keys()


def test_half_the_power_has_the_least_noise_for_a_budget_of_tokens():
    """Σ w²p(1 − p)/n over prompts, for Σ n·ℓ = 1: no other shares do better."""
    rng = np.random.default_rng(0)
    belief = LogitKalman(6)
    belief.learn(np.arange(6), [0, 1, 2, 4, 6, 8], [8] * 6)
    lengths = np.array([10, 40, 25, 60, 15, 30])
    sampler = Worth(range(6), 1, belief=belief, objective="log", worth_of="token", power=0.5)
    sampler._prices = known(lengths)
    pass_rates, costs = belief.mean(slice(None)), sampler._prices.of(slice(None))

    def noise(shares):
        draws = shares / (shares * costs).sum()
        return (pass_rates**-2 * pass_rates * (1 - pass_rates) / draws).sum()

    shares = sampler.worth(slice(None))
    others = shares * rng.uniform(0.7, 1.4, (500, 6))
    assert noise(shares) < min(noise(other) for other in others)


def test_lost_responses_and_retired_prompts():
    sampler = Retiring(Worth(range(3), 1, worth_of="token"))
    sampler.tell_tokens([0, 1, 2], tokens=[30, 0, 10], responses=[1, 0, 1])
    assert np.argsort(sampler.sampler.worth(slice(None))).tolist() == [0, 1, 2]


def test_another_price_is_refused():
    with pytest.raises(ValueError, match="worth_of must be one of response, token"):
        Worth(range(3), 1, worth_of="second")
