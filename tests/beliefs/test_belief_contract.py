"""Beliefs keep the contract, which notices who does not; and what those that count believe."""

import numpy as np
import pytest

from rollwise.beliefs import Belief, DecayedBeta, Features, LatestPassRate, LogitKalman, Ratings
from rollwise.beliefs.belief import priors_around
from rollwise.beliefs.testing import BeliefContract, through_files


def with_columns(total):
    vectors = np.random.default_rng(0).normal(size=(total, 5))
    rates, levels = [None, *[0.5] * (total - 1)], [None, 1, 3, *[5] * (total - 3)]
    features = Features({"vectors": vectors, "pass_rate": rates, "level": levels})
    return LogitKalman(total, features=features)


KINDS = {
    "decayed": DecayedBeta,
    "with a prior": lambda n: DecayedBeta(n, decay=1.0, prior_correct=0.5, prior_incorrect=3.0),
    "latest": LatestPassRate,
    "ratings": Ratings,
    "calibrated": lambda n: Ratings(n, form="calibrated"),
    "kalman": LogitKalman,
    "no drift": lambda n: LogitKalman(n, drift_gain=0.0, noise=0.0, initial_pass_rate=0.1),
    "columns": with_columns,
}


class TestBeliefs(BeliefContract):
    @pytest.fixture(autouse=True, params=KINDS.values(), ids=KINDS)
    def kind(self, request):
        self.of_kind = request.param

    def make(self, total):
        return self.of_kind(total)


def forgets(belief, state):
    DecayedBeta.load_state_dict(belief, {**state, "correct": 0 * state["correct"]})


def sorts(belief, indices):
    return DecayedBeta.believe(belief, np.sort(np.arange(belief.total)[indices]))


RESUMES, POSSIBLE = "a_state_resumes_exactly", "means_strengths_and_priors_are_possible"


@pytest.mark.parametrize(
    ("base", "methods", "test"),
    [
        (DecayedBeta, {"load_state_dict": forgets}, RESUMES),
        (LatestPassRate, {"state_dict": lambda self: {"pass_rates": self._pass_rates}}, RESUMES),
        (LatestPassRate, {"priors": lambda self, i: Belief.priors(self, i) - 1}, POSSIBLE),
        (DecayedBeta, {"learn": lambda *given: None}, "it_learns"),
        (DecayedBeta, {"believe": sorts}, "indices_come_in_any_order_and_as_a_slice"),
    ],
)
def test_the_contract_notices(base, methods, test):
    class Suite(BeliefContract):
        def make(self, total):
            return type("Wrong", (base,), methods)(total)

    with pytest.raises(AssertionError):
        getattr(Suite(), f"test_{test}")()


def test_a_mean_counts_as_so_many_responses():
    """α = 1 + w·p̂ and β = 1 + w·(1 − p̂), by default with w = 4."""
    mean = np.array([1.0, np.nan, 0.25])
    assert priors_around(mean).tolist() == [[5, 1], [1, 1], [2, 4]]
    assert priors_around(mean, np.array([2, 0, 8])).tolist() == [[3, 1], [1, 1], [3, 7]]


def test_a_state_with_a_table_in_it_is_told_so():
    with pytest.raises(AssertionError, match="counts is a dict; a state holds arrays and scalars"):
        through_files({"counts": {"a": 1}})


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (LogitKalman, {"initial_pass_rate": 1.0}, "initial_pass_rate must lie in"),
        (LogitKalman, {"initial_variance": 0.0}, r"initial_variance must lie in \(0, inf\)"),
        (LogitKalman, {"noise": -0.1}, r"noise must lie in \[0, inf\)"),
        (LogitKalman, {"drift_gain": 1.5}, r"drift_gain must lie in \[0, 1\]"),
        (DecayedBeta, {"decay": np.nan}, r"decay must lie in \[0, 1\], got nan"),
        (DecayedBeta, {"prior_correct": 0.0}, r"prior_correct must lie in \(0, inf\), got 0.0"),
        (DecayedBeta, {"prior_incorrect": np.nan}, r"prior_incorrect must lie in \(0, inf\)"),
        (Ratings, {"form": "glicko"}, "^form must be one of paper, released_code, calibrated; got"),
    ],
)
def test_settings_out_of_range_are_refused(kind, setting, message):
    with pytest.raises(ValueError, match=message):
        kind(3, **setting)


@pytest.mark.parametrize(
    ("decay", "believed"),
    [
        (0.0, [1 + 4, 1 + 0]),  # the latest visit alone
        # N₊ = ½(½·1 + 3) + 4 = 5.75 and N₋ = ½(½·3 + 1) + 0 = 1.25; the prior adds 1 and 1.
        (0.5, [6.75, 2.25]),
        (1.0, [1 + 8, 1 + 4]),
    ],
)
def test_counts_decay_at_a_visit(decay, believed):
    belief = DecayedBeta(2, decay=decay)
    for correct in (1, 3, 4):
        belief.learn(np.array([0]), np.array([correct]), np.array([4]))
    assert belief.priors(np.array([1, 0])).tolist() == [[1, 1], believed]
    assert belief.mean(np.array([1, 0])).tolist() == [0.5, believed[0] / sum(believed)]
    assert belief.metrics() == {"visited": 0.5}  # once, whatever was drawn
