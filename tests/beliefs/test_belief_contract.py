"""Every belief here keeps the contract; and the contract notices who does not."""

import numpy as np
import pytest

from rollwise.beliefs import (
    Constant,
    DecayedBeta,
    Features,
    LatestPassRate,
    LogitKalman,
    Ratings,
)
from rollwise.beliefs.belief import priors_around
from rollwise.beliefs.testing import BeliefContract, through_files


def evens(total):
    """Indices whose remainders by 3 and by 2 make counts that can be."""
    return [index if index % 2 else 0 for index in range(total)]


class TestDecayedBeta(BeliefContract):
    def make(self, total):
        return DecayedBeta(total)


class TestDecayedBetaWithAPrior(BeliefContract):
    def make(self, total):
        return DecayedBeta(total, decay=1.0, prior_correct=0.5, prior_incorrect=3.0)


class TestLatestPassRate(BeliefContract):
    def make(self, total):
        return LatestPassRate(total)


class TestRatings(BeliefContract):
    def make(self, total):
        return Ratings(total)


class TestCalibratedRatings(BeliefContract):
    def make(self, total):
        return Ratings(total, form="calibrated", step_floor=0.2)


class TestLogitKalman(BeliefContract):
    def make(self, total):
        return LogitKalman(total)


class TestLogitKalmanWithoutDrift(BeliefContract):
    def make(self, total):
        return LogitKalman(total, drift_gain=0.0, noise=0.0, initial_pass_rate=0.1)


class TestLogitKalmanWithFeatures(BeliefContract):
    def make(self, total):
        levels = [None, 1, 3, *[5] * (total - 3)]
        return LogitKalman(total, features=Features({"level": levels}))


class TestLogitKalmanWithVectorsAndHistory(BeliefContract):
    def make(self, total):
        rng = np.random.default_rng(0)
        columns = {"vectors": rng.normal(size=(total, 5)), "history": [None, *[0.5] * (total - 1)]}
        return LogitKalman(total, features=Features(columns))


class TestConstant(BeliefContract):
    def make(self, total):
        return Constant(total)

    def test_it_learns(self):
        """Of all prompts alike."""
        belief = self.make(3)
        belief.learn(np.array([1]), np.array([4]), np.array([4]))
        assert belief.mean(np.arange(3)).tolist() == [belief.mean(np.array([0]))[0]] * 3
        assert belief.mean(np.array([0])) > 0.5
        hardness, aim = self.make(3).hardness(0.25)
        assert (hardness.tolist(), aim) == ([0.5] * 3, 0.75)


class Forgetful(DecayedBeta):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "correct": 0 * state["correct"]})


class Certain(LatestPassRate):
    def priors(self, indices):
        return super().priors(indices) - 1


class Deaf(DecayedBeta):
    def learn(self, indices, correct, drawn):
        """Learns nothing."""


class OfOneIndex(DecayedBeta):
    def believe(self, indices):
        return super().believe(np.sort(np.atleast_1d(np.arange(self.total)[indices])))


class Shared(LatestPassRate):
    def state_dict(self):
        return {"pass_rates": self._pass_rates}


@pytest.mark.parametrize(
    ("belief", "test"),
    [
        (Forgetful, "test_a_state_resumes_exactly"),
        (Shared, "test_a_state_resumes_exactly"),
        (Certain, "test_means_strengths_and_priors_are_possible"),
        (Deaf, "test_it_learns"),
        (OfOneIndex, "test_indices_come_in_any_order_and_as_a_slice"),
    ],
)
def test_the_contract_notices(belief, test):
    class Suite(BeliefContract):
        def make(self, total):
            return belief(total)

    with pytest.raises(AssertionError):
        getattr(Suite(), test)()


def test_a_mean_counts_as_so_many_responses():
    """α = 1 + w·p̂ and β = 1 + w·(1 − p̂), by default with w = 4."""
    mean = np.array([1.0, np.nan, 0.25])
    assert priors_around(mean).tolist() == [[5, 1], [1, 1], [2, 4]]
    assert priors_around(mean, np.array([2, 0, 8])).tolist() == [[3, 1], [1, 1], [3, 7]]


def test_a_state_with_a_table_in_it_is_told_so():
    with pytest.raises(AssertionError, match="counts is a dict; a state holds arrays and scalars"):
        through_files({"counts": {"a": 1}})
