"""Samplers that choose by a belief: Thompson draws, in proportion to 1 − s, and to worth."""

import itertools

import numpy as np
import pytest

from rollwise.beliefs import Belief
from rollwise.beliefs.ratings import logistic
from rollwise.prompts import Posterior, Prioritized, Worth


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
    sampler, times = Posterior("ab", 1), 4000
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


PASS_RATES = [0.0, 0.25, 0.5, 0.75, 1.0]


def told(batch_size, **settings):
    sampler = Prioritized(range(5), batch_size, **settings)
    sampler.tell(range(5), [0, 2, 4, 6, 8], [8] * 5)
    return sampler


def within_errors(counts, times, shares):
    """Each count within 4 standard errors of its share."""
    shares = np.array(shares)
    errors = np.abs(np.array(counts) / times - shares)
    return np.all(errors <= 4 * np.sqrt(shares * (1 - shares) / times))


def test_two_prompts_are_drawn_one_after_the_other():
    """P(first i, then j) = w_i/W · w_j/(W − w_i), for all twelve ordered pairs."""
    sampler, times = told(2), 4000
    weights = [1 - s for s in PASS_RATES]
    counts = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for _ in range(times):
        counts[tuple(sampler.ask())] += 1
    total = sum(weights)
    shares = [weights[i] / total * weights[j] / (total - weights[i]) for i, j in counts]
    assert within_errors(list(counts.values()), times, shares)


def test_solved_prompts_come_last_and_uniformly():
    sampler = Prioritized(range(6), 3)
    sampler.tell(range(4), [8] * 4, [8] * 4)
    counts = np.zeros(6)
    for _ in range(4000):
        batch = sampler.ask()
        assert set(batch[:2]) == {4, 5}
        counts[batch[2]] += 1
    assert within_errors(counts[:4], 4000, [0.25] * 4)


def test_unvisited_prompts_count_as_failed_or_as_set():
    failed = Prioritized("ab", 1)
    failed.tell(["a"], [8], [8])
    assert {failed.ask()[0] for _ in range(50)} == {"b"}
    sampler, times = Prioritized("ab", 1, unvisited=0.75), 4000
    sampler.tell(["a"], [0], [8])
    counts = np.zeros(2)
    for _ in range(times):
        counts["ab".index(sampler.ask()[0])] += 1
    assert within_errors(counts, times, [0.8, 0.2])


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
