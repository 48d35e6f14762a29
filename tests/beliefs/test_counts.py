"""Beliefs that count: decayed counts, their prior, and one share for all prompts."""

import numpy as np
import pytest

from rollwise.beliefs import Constant, DecayedBeta
from rollwise.prompts import Curriculum, Posterior, Uniform

A, B = np.array([0]), np.array([1])


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
        belief.learn(A, np.array([correct]), np.array([4]))
    assert belief.priors(np.array([1, 0])).tolist() == [[1, 1], believed]
    assert belief.mean(np.array([1, 0])).tolist() == [0.5, believed[0] / sum(believed)]
    assert belief.metrics() == {"visited": 0.5}  # once, whatever was drawn


@pytest.mark.parametrize("kind", [Uniform, Curriculum, Posterior])
def test_samplers_that_count_have_a_decay(kind):
    levels = {"levels": [4, 4]} if kind is Curriculum else {}
    assert kind("ab", 1, decay=0.25, **levels).belief.decay == 0.25


def test_the_share_of_correct_responses_older_steps_counting_half():
    """(1 + 0)/(2 + 0) = ½; then (½ + 6)/(1 + 8) = 13/18; then (3¼ + 0)/(4½ + 1) = 13/22."""
    belief, indices = Constant(5, decay=0.5), np.arange(5)
    assert belief.believe(indices)[0].tolist() == [0.5] * 5
    belief.learn(np.array([0, 3]), np.array([2, 4]), np.array([4, 4]))
    assert belief.believe(indices)[0] == pytest.approx([13 / 18] * 5)
    belief.learn(B, [0], [1])
    assert belief.believe(indices)[0] == pytest.approx([13 / 22] * 5)
    assert belief.metrics()["belief_share"] == pytest.approx(13 / 22)
    before = belief.state_dict()
    belief.learn(A, [0], [0])
    assert belief.state_dict() == before
    for state, message in (({"total": 5}, "lacks 'correct'"), ({"total": 2}, "of total 2, this")):
        with pytest.raises(ValueError, match=message):
            belief.load_state_dict(state)
