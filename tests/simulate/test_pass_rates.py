"""Pass rates: from files, from a distribution, and what may be behind measured ones."""

import json

import numpy as np
import pytest

from rollwise.errors import DataError
from rollwise.simulate.pass_rates import (
    RatedPrompt,
    read_pass_rates,
    resample_pass_rates,
    spread_pass_rates,
)


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        path = tmp_path / "rates.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_a_file_needs_nothing_but_pass_rates_and_may_have_key_level_and_draws(write):
    full = {"key": "a", "level": "Level 3", "pass_rate": 0.25, "drawn": 16}
    read = read_pass_rates(write({"pass_rate": 0.25}, {"pass_rate": 1, "other": "x"}, full))
    assert read[:2] == [RatedPrompt("row 0", 0.25), RatedPrompt("row 1", 1.0)]
    assert read[2] == RatedPrompt("a", 0.25, 3, (4.0, 16.0))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"rate": 0.5}], "it needs a column `pass_rate`; its columns are rate"),
        ([{"pass_rate": 0.5}, {"pass_rate": None}], "line 2: `pass_rate` must be a number"),
        ([{"pass_rate": 1.5}], "from 0 to 1, got float: 1.5"),
        ([{"pass_rate": float("nan")}], "from 0 to 1, got float: nan"),
        ([{"pass_rate": 0.5, "drawn": 0}], "`drawn` must be a number of responses above 0"),
        ([{"pass_rate": 0.5, "key": "a"}] * 2, "line 2: `key` must differ"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(write, rows, said):
    with pytest.raises(DataError, match=said):
        read_pass_rates(write(*rows))


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


def test_what_is_not_measured_stays_and_many_responses_leave_no_doubt():
    """Their likelihoods, below 10⁻²⁰⁰⁰⁰ here, do not vanish."""
    rated = RatedPrompt("a", 0.5)
    prompts = [rated, RatedPrompt("b", 0.3, None, (30_000.0, 100_000.0))]
    rng = np.random.default_rng(0)
    assert resample_pass_rates([rated], rng) == [rated]
    first, second = resample_pass_rates(prompts, rng)
    assert first == rated
    assert second.pass_rate == pytest.approx(0.3, rel=0.04)
