"""Samplers that choose by a belief: Thompson draws, in proportion to 1 − s, and to worth."""

import itertools
from collections import Counter

import numpy as np
import pytest

from rollwise.beliefs import Belief, DecayedBeta
from rollwise.prompts import Posterior, Prioritized, Worth


def shares(sampler, places=0):
    """How often each prompt has these places of a batch, in 4,000 batches."""
    found = [sampler.index[key] for _ in range(4000) for key in np.ravel(sampler.ask()[places])]
    return np.bincount(found, minlength=len(sampler.keys)) / len(found)


def within_errors(found, expected):
    """Each share of 4,000 within 4 standard errors."""
    expected = np.array(expected)
    return np.all(np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / 4000))


def test_the_decay_is_that_of_mopps():
    """α ← λα + (1 − λ)α₀ + n₊, with other priors."""
    belief = DecayedBeta(1, decay=0.8, prior_correct=2.0, prior_incorrect=3.0)
    sampler = Posterior("a", 1, belief=belief)
    alpha, beta = 2.0, 3.0
    for correct in (0, 5, 8, 2):
        sampler.tell(["a"], [correct], [8])
        alpha = 0.8 * alpha + 0.2 * 2.0 + correct
        beta = 0.8 * beta + 0.2 * 3.0 + 8 - correct
    assert sampler.expected_pass_rates(["a"])[0] == pytest.approx(alpha / (alpha + beta), rel=1e-6)


@pytest.mark.parametrize(("target", "known"), [(0.5, 0.75), (0.8, 0.52)])
def test_thompson_draws_choose_as_often_as_the_posteriors_say(target, known):
    """a: Beta(5, 5), b: the prior Beta(1, 1); how often a draw of a is nearer than one of b.

    P = E over θ_b of P(|θ_a − target| < |θ_b − target|), by 400,000 draws of another generator.
    """
    rng = np.random.default_rng(99)
    a, b = rng.beta(5, 5, 400_000), rng.random(400_000)
    share = np.mean(np.abs(a - target) < np.abs(b - target))
    sampler = Posterior("ab", 1, target=target)
    sampler.tell(["a"], [4], [8])
    assert within_errors(shares(sampler), [share, 1 - share])
    assert share == pytest.approx(known, abs=0.01)


def test_a_share_of_the_prompts_is_random_and_never_chosen_twice():
    """Of eight, four near ½ and four solved: two are aimed, and two random among the other six."""
    sampler = Posterior(range(8), 4, exploration=0.5)
    sampler.tell(range(8), [500] * 4 + [1000] * 4, [1000] * 8)
    batches = [sampler.ask() for _ in range(2000)]
    assert {len(set(batch)) for batch in batches} == {4}
    of_solved = np.mean([sum(key >= 4 for key in batch) for batch in batches])
    assert of_solved == pytest.approx(2 * 4 / 6, abs=0.06)  # 4 standard errors
    first = np.mean([batch[0] >= 4 for batch in batches])  # mixed, so that updates are alike
    assert first == pytest.approx(of_solved / 4, abs=0.05)


def test_two_prompts_are_drawn_one_after_the_other():
    """P(first i, then j) = w_i/W · w_j/(W − w_i), for all twelve ordered pairs."""
    sampler = Prioritized(range(5), 2)
    sampler.tell(range(5), [0, 2, 4, 6, 8], [8] * 5)
    batches = Counter(tuple(sampler.ask()) for _ in range(4000))
    weights = [1.0, 0.75, 0.5, 0.25]
    pairs = {
        (i, j): weights[i] / 2.5 * weights[j] / (2.5 - weights[i])
        for i, j in itertools.permutations(range(4), 2)
    }
    assert within_errors([batches[pair] / 4000 for pair in pairs], [*pairs.values()])


def test_solved_prompts_come_last_and_uniformly():
    sampler = Prioritized(range(6), 3)
    sampler.tell(range(4), [8] * 4, [8] * 4)
    assert all(set(sampler.ask()[:2]) == {4, 5} for _ in range(50))
    assert within_errors(shares(sampler, 2), [0.25] * 4 + [0, 0])


class Known(Belief):
    """Knows the pass rates."""

    def __init__(self, pass_rates):
        super().__init__(len(pass_rates))
        self.pass_rates = np.array(pass_rates)

    def believe(self, indices):
        return self.pass_rates[indices], np.ones(self.total)[indices]

    def learn(self, indices, correct, drawn): ...


def test_prompts_come_in_proportion_to_their_worth():
    """p(1 − p) is .09, .25, .16 for p = .1, .5, .8: shares of .9/5 + .1/3 and so on."""
    sampler = Worth(range(3), 1, belief=Known([0.1, 0.5, 0.8]))
    expected = 0.9 * np.array([0.09, 0.25, 0.16]) / 0.5 + 0.1 / 3
    assert within_errors(shares(sampler), expected)


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
