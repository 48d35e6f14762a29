"""Beliefs that count: decayed counts, their prior, and one share for all prompts."""

import numpy as np
import pytest

from rollwise.beliefs import Constant, DecayedBeta
from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Uniform

COUNTING = {
    "uniform": lambda keys, **settings: Uniform(keys, 1, **settings),
    "curriculum": lambda keys, **settings: Curriculum(keys, 1, levels=[4] * len(keys), **settings),
    "posterior": lambda keys, **settings: Posterior(keys, 1, **settings),
}
FORECASTERS = COUNTING | {
    "prioritized": lambda keys, **settings: Prioritized(keys, 1),
    "paper": lambda keys, **settings: CDAS(keys, 1),
    "released_code": lambda keys, **settings: CDAS(keys, 1, form="released_code"),
    "calibrated": lambda keys, **settings: CDAS(keys, 1, form="calibrated"),
}


@pytest.mark.parametrize("name", COUNTING)
def test_counts_decay_at_a_visit(name):
    """λ = ½: N₊ = ½(½·1 + 3) + 4 = 5.75 and N₋ = ½(½·3 + 1) + 0 = 1.25; the prior adds 1 and 1."""
    sampler = COUNTING[name]("ab")
    for correct in (1, 3, 4):
        sampler.tell(["a"], [correct], [4])
    assert sampler.pass_rate_priors(["b", "a"]).tolist() == [[1, 1], [6.75, 2.25]]
    assert sampler.expected_pass_rates(["b", "a"]).tolist() == [0.5, 0.75]
    assert sampler.metrics()["visited"] == 0.5


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize(("decay", "believed"), [(0.0, [1, 5]), (1.0, [4, 6])])
def test_only_the_latest_visit_or_all_of_them(name, decay, believed):
    sampler = COUNTING[name]("ab", decay=decay)
    sampler.tell(["b"], [3], [4])
    sampler.tell(["b"], [0], [4])
    assert sampler.pass_rate_priors(["b"]).tolist() == [believed]


@pytest.mark.parametrize("name", FORECASTERS)
def test_a_belief_agrees_with_what_is_expected(name):
    """Counts: its mean. An expectation p̂ counts as 4 responses: (1 + 4p̂)/6, of 6 in all."""
    sampler, rng = FORECASTERS[name](range(20)), np.random.default_rng(3)
    for _ in range(6):
        told = rng.choice(15, 8, replace=False)
        sampler.tell(told, rng.binomial(4, told / 14), [4] * 8)
    assert sampler.metrics()["visited"] == 0.75
    expected, priors = sampler.expected_pass_rates(range(15)), sampler.pass_rate_priors(range(15))
    if name not in COUNTING:
        assert priors.sum(axis=1) == pytest.approx(6)
        expected = (1 + 4 * expected) / 6
    assert len(set(expected)) >= 5
    assert priors[:, 0] / priors.sum(axis=1) == pytest.approx(expected)


def test_prompts_visited_are_counted_once():
    """Whatever was drawn, and after a state too."""
    belief, other = DecayedBeta(5, decay=0.0), DecayedBeta(5, decay=0.0)
    for indices, correct in (([0, 1], [0, 4]), ([1, 2], [0, 4]), ([0, 2], [4, 0])):
        belief.learn(np.array(indices), np.array(correct), np.array([4, 4]))
    other.load_state_dict(belief.state_dict())
    assert belief.metrics() == other.metrics() == {"visited": 0.6}


def test_the_share_of_correct_responses_older_steps_counting_half():
    """(1 + 0)/(2 + 0) = ½; then (½ + 6)/(1 + 8) = 13/18; then (3¼ + 0)/(4½ + 1) = 13/22."""
    belief, indices = Constant(5, decay=0.5), np.arange(5)
    assert belief.believe(indices)[0].tolist() == [0.5] * 5
    belief.learn(np.array([0, 3]), np.array([2, 4]), np.array([4, 4]))
    assert belief.believe(indices)[0] == pytest.approx([13 / 18] * 5)
    belief.learn(np.array([1]), [0], [1])
    assert belief.believe(indices)[0] == pytest.approx([13 / 22] * 5)
    assert belief.metrics()["belief_share"] == pytest.approx(13 / 22)


def test_a_step_without_draws_changes_nothing():
    belief = Constant(2)
    belief.learn(np.array([0]), [0], [0])
    assert belief.state_dict() == Constant(2).state_dict()


def test_a_state_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="lacks 'drawn'"):
        Constant(2).load_state_dict({"total": 2, "correct": 1.0})
    with pytest.raises(ValueError, match="of total 2, this one of 3"):
        Constant(3).load_state_dict(Constant(2).state_dict())
