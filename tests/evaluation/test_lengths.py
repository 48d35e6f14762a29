"""Lengths fitted to responses, cut ones among them, are those that they were drawn with."""

import numpy as np
import pytest

from rollwise.engines.simulated import Lengths
from rollwise.evaluation.lengths import fit_lengths


@pytest.mark.parametrize("longest", [10_000, 600])
def test_a_fit_finds_the_lengths_however_many_were_cut(longest):
    """At 600 tokens, 6 of 10 incorrect responses are cut."""
    lengths = Lengths(median=400, sigma=0.6, longest=longest, incorrect_factor=1.8)
    rng = np.random.default_rng(0)
    correct = rng.random(6000) < 0.4
    drawn = [lengths.length(u, bool(c)) for u, c in zip(rng.random(6000), correct, strict=True)]
    fitted = fit_lengths([t for t, _ in drawn], [cut for _, cut in drawn], correct)
    assert fitted.median == pytest.approx(400, rel=0.05)
    assert fitted.sigma == pytest.approx(0.6, rel=0.05)
    assert fitted.incorrect_factor == pytest.approx(1.8, rel=0.06)


def test_responses_all_alike_have_no_spread():
    fitted = fit_lengths([7] * 5, [False] * 5, [True] * 5)
    assert (fitted.median, fitted.incorrect_factor) == pytest.approx((7, 1))
    assert fitted.sigma == pytest.approx(0, abs=1e-9)


def test_cut_responses_alone_tell_no_lengths():
    with pytest.raises(ValueError, match="at least 2 responses that were not cut, got 1"):
        fit_lengths([9, 9, 5], [True, True, False], [True, False, True])
