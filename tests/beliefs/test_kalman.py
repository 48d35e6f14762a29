"""The filter on logits: its posterior, its drift, what it forgets, and how it is kept."""

import numpy as np
import pytest

from rollwise.beliefs.features import Features
from rollwise.beliefs.kalman import LogitKalman, posterior
from rollwise.beliefs.ratings import logistic


def test_the_posterior_has_the_moments_found_by_integration():
    """Also where the prior is far wider than the likelihood, or far from what was observed."""
    mean = np.array([0.0, 0.0, -1.0, 3.0, -4.0])
    variance = np.array([1.5, 8.0, 1.0, 4.0, 2.0])
    correct, drawn = np.array([1, 30, 0, 0, 1]), np.array([1, 64, 4, 2, 1])
    found = posterior(mean, variance, correct, drawn)
    grid = np.linspace(-25, 25, 50_001)
    for i in range(len(mean)):
        logs = correct[i] * grid - drawn[i] * np.logaddexp(0, grid)
        logs -= (grid - mean[i]) ** 2 / (2 * variance[i])
        weight = np.exp(logs - logs.max())
        centre = np.average(grid, weights=weight)
        width = np.average((grid - centre) ** 2, weights=weight)
        assert found[0][i] == pytest.approx(centre, abs=0.01 * width**0.5)
        assert found[1][i] == pytest.approx(width, rel=0.02)


def test_the_first_step_finds_the_level_and_later_drifts_are_smoothed():
    """Of 100 responses 25 are correct where ½ was expected: the shift is (25 − 50)/Σ ∂p̂/∂L, where
    p̂ = σ(m/√(1 + π·1.5/8)) has the derivative ¼/√(1 + π·1.5/8) at ½. After many steps without
    surprise, 2 of 4 at ½, a step of 3 of 4 has the drift gain·(3 − 2)/(4·¼/√(1 + πv/8))."""
    width = np.sqrt(1 + np.pi * 1.5 / 8)
    belief = LogitKalman(200)
    belief.learn(np.arange(100), np.arange(100) % 4 == 0, np.ones(100))
    assert belief.logits(np.array([150]))[0] == pytest.approx([-width])
    assert belief.metrics()["belief_drift"] == pytest.approx(-width)
    belief = LogitKalman(40_000, drift_gain=0.3)
    for step in range(10):
        belief.learn(np.arange(4) + 4 * step, [1, 0, 1, 0], [1] * 4)
    belief.learn(np.arange(4) + 40, [1, 1, 1, 0], [1] * 4)
    assert belief.metrics()["belief_drift"] == pytest.approx(0.3 * width)


@pytest.mark.parametrize("reward", [0, 1])
def test_a_belief_survives_hundreds_of_steps_of_equal_rewards_and_recovers(reward):
    belief, indices = LogitKalman(40), np.arange(40)
    for _ in range(300):
        belief.learn(indices[:20], np.full(20, reward), np.ones(20))
    assert np.isfinite(belief.priors(indices)).all()
    for _ in range(60):
        belief.learn(indices, indices % 2, np.ones(40))
    assert belief.believe(indices)[0].mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("variance", [0.3, 4.0])
def test_the_variance_of_the_set_is_learnt_from_single_draws(variance):
    """Started at 1.5, it comes within a third of the true one."""
    rng = np.random.default_rng(1)
    truth = rng.normal(0, variance**0.5, 1500)
    belief = LogitKalman(1500, noise=0.0)
    for _ in range(300):
        indices = rng.choice(1500, 64, replace=False)
        correct = rng.random(64) < logistic(truth[indices])
        belief.learn(indices, correct, np.ones(64))
    assert belief.variance == pytest.approx(variance, rel=1 / 3)
    assert belief.metrics()["belief_spread"] == pytest.approx(belief.variance**0.5)


def test_what_was_learnt_is_forgotten_and_the_set_stays_as_wide():
    """With V = 1 and noise 0.1, f² = e^(−0.1) a step: m and v of a visit become f·m and
    f²·v + 1 − f². A prompt never visited stays at V."""
    belief = LogitKalman(3, noise=0.1, initial_variance=1.0, drift_gain=0.0)
    belief._scale_by = lambda *surprises: None  # V stays
    belief.learn(np.array([0]), [7], [8])
    (mean,), (variance,) = belief.logits(np.array([0]))
    for age in range(1, 9):
        belief.learn(np.array([1]), [4], [8])
        kept = np.exp(-0.1 * age)
        means, variances = belief.logits(np.array([0, 2]))
        assert means == pytest.approx([kept**0.5 * mean, 0.0])
        assert variances == pytest.approx([kept * variance + 1 - kept, 1.0])


def test_mean_and_strength_are_those_of_the_logit_normal():
    """σ(m/√(1 + πv/8)) is within 0.02 of the integral of σ over N(m, v). The strength is
    1/(v·p(1 − p)): at p = ½ and v = 1, 4 pseudo-counts, and 4/v after 2 of 4 correct."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    one = np.array([0])
    for rate in (0.05, 0.3, 0.5, 0.8):
        belief = LogitKalman(1, initial_pass_rate=rate, initial_variance=2.0)
        mean, variance = belief.logits(one)
        exact = logistic(mean + np.sqrt(variance) * nodes) @ weights / weights.sum()
        assert belief.believe(one)[0] == pytest.approx([exact], abs=0.02)
    belief = LogitKalman(1, initial_variance=1.0, noise=0.0, drift_gain=0.0)
    assert belief.believe(one)[1] == pytest.approx([4.0])
    belief.learn(one, [2], [4])
    assert belief.believe(one)[1] == pytest.approx(4.0 / belief.logits(one)[1])


@pytest.mark.parametrize(
    ("given", "columns", "before", "after"),
    [
        ({}, {}, 0.5, 0.12),
        ({"initial_pass_rate": 0.3}, {}, 0.3, 0.3),  # as is given wins
        ({}, {"pass_rate": [0.0, 0.1, None, 0.8]}, 0.3, 0.12),
        ({}, {"pass_rate": ["easy", "hard", "", "hard"]}, 0.5, 0.12),
    ],
)
def test_it_begins_at_what_is_known_of_the_whole_set(given, columns, before, after):
    belief = LogitKalman(4, features=Features(columns), **given)
    assert belief.mean(slice(None)).mean() == pytest.approx(before)
    belief.start_at(0.12)
    assert belief.mean(slice(None)).mean() == pytest.approx(after)
