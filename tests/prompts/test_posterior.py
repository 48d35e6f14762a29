"""Decayed Beta posteriors, Thompson draws, and the target."""

import numpy as np
import pytest

from rollwise.beliefs.ratings import logistic
from rollwise.prompts import Posterior


def test_the_decay_is_that_of_mopps():
    """α ← λα + (1 − λ)α₀ + n₊, with other priors."""
    sampler = Posterior("a", 1, decay=0.8, prior_correct=2.0, prior_incorrect=3.0)
    alpha, beta = 2.0, 3.0
    for correct in (0, 5, 8, 2):
        sampler.tell(["a"], [correct], [8])
        alpha = 0.8 * alpha + 0.2 * 2.0 + correct
        beta = 0.8 * beta + 0.2 * 3.0 + 8 - correct
    assert sampler.expected_pass_rates(["a"])[0] == pytest.approx(alpha / (alpha + beta), rel=1e-6)


def test_thompson_draws_choose_as_often_as_the_posteriors_say():
    """a: Beta(5, 5), b: the prior Beta(1, 1); how often a draw of a is nearer to ½ than one of b.

    P = E over θ_b of P(|θ_a − ½| < |θ_b − ½|), by 400,000 draws of another generator: 0.73.
    """
    rng = np.random.default_rng(99)
    a, b = rng.beta(5, 5, 400_000), rng.random(400_000)
    share = np.mean(np.abs(a - 0.5) < np.abs(b - 0.5))
    sampler, times = Posterior("ab", 1), 10_000
    sampler.tell(["a"], [4], [8])
    counted = sum(sampler.ask() == ["a"] for _ in range(times)) / times
    assert abs(counted - share) < 4 * np.sqrt(share * (1 - share) / times)
    assert 0.7 < share < 0.76


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_it_finds_the_target(target):
    """2,000 prompts of logit-normal pass rates, 64 a step, 8 draws: nearer than a random batch."""
    rng = np.random.default_rng(5)
    rates = logistic(rng.normal(-1.0, 2.0, 2000))
    sampler = Posterior(range(2000), 64, target=target)
    distance = []
    for _ in range(150):
        batch = sampler.ask()
        distance.append(np.abs(rates[batch] - target).mean())
        sampler.tell(batch, rng.binomial(8, rates[batch]), [8] * 64)
    assert np.mean(distance[-30:]) < 0.6 * np.abs(rates - target).mean()


def test_candidates_are_drawn_uniformly():
    """Of 40 prompts 10 compete for 10 places: each comes in every fourth batch."""
    sampler, times = Posterior(range(40), 10, candidates=10), 4000
    counts = np.zeros(40)
    for _ in range(times):
        counts[sampler.ask()] += 1
    assert np.abs(counts / times - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / times)
