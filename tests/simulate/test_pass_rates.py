"""Pass rates: by a distribution, and what may be behind measured ones."""

import numpy as np
import pytest

from rollwise.simulate.pass_rates import RatedPrompt, resample_pass_rates, spread_pass_rates


def test_a_distribution_is_spread_by_its_quantiles():
    rates = np.array([prompt.pass_rate for prompt in spread_pass_rates(2, 3, 1000)])
    assert rates.mean() == pytest.approx(0.4, rel=1e-3)
    assert rates.var() == pytest.approx(0.04, rel=1e-2)  # αβ / ((α + β)²(α + β + 1))


def test_resampled_pass_rates_scatter_as_the_true_ones_do():
    """Of 8 responses each, the measured rates have the true variance and p(1 − p)/8 beside it."""
    rng = np.random.default_rng(0)
    true = rng.beta(1.5, 2.5, 4000)
    correct = rng.binomial(8, true)
    prompts = [RatedPrompt(str(i), c / 8, None, (c, 8)) for i, c in enumerate(correct)]
    rates = np.array([p.pass_rate for p in resample_pass_rates(prompts, rng)])
    assert (correct / 8).var() > 1.3 * true.var()
    assert rates.var() == pytest.approx(true.var(), rel=0.08)
    assert (rates**8).mean() == pytest.approx((true**8).mean(), rel=0.1)  # all of 8 correct


def test_rates_far_from_each_other_are_told_apart():
    """Two thirds of the prompts at 0.06 and the others at 0.85: none is taken for impossible.

    Of 32 responses to each, 0.94³² of the former are all incorrect, none of the latter.
    """
    rng = np.random.default_rng(0)
    true = np.repeat([0.06, 0.85], [1000, 500])
    prompts = [
        RatedPrompt(str(i), 0.5, None, (c, 16)) for i, c in enumerate(rng.binomial(16, true))
    ]
    rates = np.array([p.pass_rate for p in resample_pass_rates(prompts, rng)])
    assert ((1 - rates) ** 32).mean() == pytest.approx(0.94**32 * 2 / 3, rel=0.1)


def test_many_responses_leave_no_doubt():
    """Their likelihoods, below 10⁻²⁰⁰⁰⁰ here, do not vanish."""
    prompts = [RatedPrompt("b", 0.3, None, (30_000.0, 100_000.0))]
    [found] = resample_pass_rates(prompts, np.random.default_rng(0))
    assert found.pass_rate == pytest.approx(0.3, rel=0.04)
