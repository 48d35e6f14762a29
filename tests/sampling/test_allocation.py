"""Fixed sample counts: the formulas by hand, and what holds whatever the pass rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.sampling.allocation import GVM, Estimated

KINDS = [Estimated, GVM]


@st.composite
def limits(draw):
    """Settings of either kind; half numbers of draws on average, too."""
    minimum = draw(st.integers(1, 6))
    maximum = draw(st.integers(minimum, 40))
    mean = draw(st.integers(2 * minimum, 2 * maximum)) / 2
    return {"minimum": minimum, "maximum": maximum, "mean_draws": mean}


def rates(least=0):
    """Pass rates k/8, so that some are equal."""
    return st.lists(st.integers(least, 8).map(lambda k: k / 8), min_size=1, max_size=30)


BY_HAND = {
    # Weights 1/√(p̂ + .01): 10, 2 and 1 at p̂ = 0, .24 and .99; of 26 draws 20, 4 and 2.
    "estimated": (Estimated(26 / 3), [[0.0, 0.24, 0.99]], [20, 4, 2]),
    # Of 39: 30, 6, 3 without limits. At most 16 leaves 23 for 2 : 1, so 15⅓ and 7⅔.
    "at most": (Estimated(13, maximum=16), [[0.0, 0.24, 0.99]], [16, 15, 8]),
    # At least 9 for the last, of at most 20 for the first, leaves 10 for the second.
    "at least": (Estimated(13, minimum=9, maximum=20), [[0.0, 0.24, 0.99]], [20, 10, 9]),
    # With α = 0 weights are 1/√p: 4, 2, 1 at 1/16, 1/4, 1, none at 0; of 28 draws 16, 8, 4.
    "gvm": (GVM(7, alpha=0.0), [[0.25, 0.0, 1.0, 0.0625]], [8, 0, 4, 16]),
    # Weights 2, 0, 4, 1.
    "norms": (GVM(7, alpha=0.0), [[0.25, 0, 1, 0.0625], [1.0, 5.0, 4.0, 0.25]], [8, 0, 16, 4]),
    # The published weights at p = √α and at 1: 1/√(2√α) = 3.976 and 1/√(1 + α) = .9995.
    "alpha": (GVM(50, maximum=100), [[np.sqrt(1e-3), 1.0]], [80, 20]),
    # With β = 3 it is 1/√(p + α/p²): .9914 at p = √α, so about as much as at 1.
    "beta": (GVM(50, maximum=100, beta=3.0), [[np.sqrt(1e-3), 1.0]], [50, 50]),
    # Too few prompts take part to spend the mean.
    "few": (GVM(), [[0.0] * 9 + [0.5]], [0] * 9 + [32]),
    "none": (GVM(), [[0.0, 0.0]], [0, 0]),
    "no norm": (GVM(), [[0.5, 0.5], [0.0, 0.0]], [0, 0]),
    # Equal quotas of 2.5 each, which are rounded up in order.
    "ties": (Estimated(2.5, minimum=1), [[0.3] * 4], [3, 3, 2, 2]),
    # 4.75, 2.625 and 2.625 of 10: the largest remainder first.
    "remainders": (GVM(10 / 3, alpha=0.0), [[1.0] * 3, [4.75, 2.625, 2.625]], [5, 3, 2]),
}


@pytest.mark.parametrize(("allocation", "given", "counts"), BY_HAND.values(), ids=BY_HAND)
def test_counts_by_hand(allocation, given, counts):
    assert allocation.counts(*given).tolist() == counts


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_counts_as_a_half(kind):
    assert kind().counts([np.nan, 0.1, 1.0]).tolist() == kind().counts([0.5, 0.1, 1.0]).tolist()


@given(limits(), rates(), st.floats(1e-4, 1))
def test_counts_are_rounded_quotas_and_keep_the_sum_and_the_limits(settings, pass_rates, epsilon):
    """The quotas are clip(c · w, minimum, maximum), with c by the plainest way to find it."""
    rates_P = np.array(pass_rates)
    mean, least, most = (settings[name] for name in ("mean_draws", "minimum", "maximum"))
    for allocation, weights in (
        (Estimated(**settings, epsilon=epsilon), 1 / np.sqrt(rates_P + epsilon)),
        (GVM(**settings), (rates_P > 0) / np.sqrt(rates_P + 1e-3 / np.maximum(rates_P, 0.1))),
    ):
        counts = allocation.counts(pass_rates)
        some = weights > 0
        wanted = min(round(mean * len(rates_P)), most * some.sum())
        assert counts.dtype == np.int64
        assert counts.sum() == counts[some].sum() == wanted
        assert np.all((counts[some] >= least) & (counts[some] <= most))
        low, high = 0.0, 2 * most / min(weights[some], default=1.0)
        for _ in range(200):
            middle = (low + high) / 2
            enough = np.clip(middle * weights[some], least, most).sum() >= wanted
            low, high = (low, middle) if enough else (middle, high)
        quotas = np.clip(high * weights[some], least, most)
        assert np.abs(counts[some] - quotas).max(initial=0) < 1 + 1e-6


@pytest.mark.filterwarnings("error")
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.lists(st.floats(0, 1e9), min_size=20))
def test_any_numbers_can_be_shared_out(pass_rates, norms):
    counts = GVM().counts(pass_rates, norms[: len(pass_rates)])
    assert 0 <= counts.min() <= counts.max() <= 32
    assert counts.sum() <= 8 * len(pass_rates)
    assert np.all(Estimated().counts(pass_rates) >= 2)


REFUSED = [
    (lambda: GVM(minimum=9, maximum=8), ValueError, "^maximum must be at least 9, got 8$"),
    (lambda: GVM(minimum=-1), ValueError, "^minimum must be at least 0, got -1$"),
    (lambda: Estimated(minimum=0), ValueError, "^minimum must be at least 1, got 0$"),
    (lambda: Estimated(maximum=8.5), TypeError, "^maximum must be an integer, got 8.5$"),
    (lambda: Estimated(1.5, minimum=2), ValueError, r"^mean_draws .*\(2\) and .*1.5$"),
    (lambda: GVM(40), ValueError, r"and maximum \(32\), got 40$"),
    (lambda: GVM(np.nan), ValueError, r"^mean_draws must lie between .*, got nan$"),
    (lambda: Estimated(epsilon=0.0), ValueError, r"^epsilon must lie in \(0, inf\), got 0.0$"),
    (lambda: GVM(pilot=0), ValueError, "^pilot must be at least 1, got 0$"),
    (lambda: GVM(alpha=-1.0), ValueError, r"^alpha must lie in \[0, inf\), got -1.0$"),
    (lambda: GVM(beta=0.5), ValueError, r"^beta must lie in \[1, inf\), got 0.5$"),
    (lambda: GVM().counts([0.5, 1.5]), ValueError, "^pass_rates must lie .*, got .*1.5"),
    (lambda: GVM().counts([[0.5, 0.5]]), ValueError, r"^pass_rates must .*shape \(P,\), got"),
    (lambda: GVM().counts([0.5], [1, 2]), ValueError, "^gradient_norms must .* one per pass rate"),
    (lambda: GVM().counts([0.5], [-1.0]), ValueError, "^gradient_norms must be finite"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_cannot_be_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
