"""The belief that tells no prompt from another."""

import numpy as np
import pytest

from rollwise.beliefs import Constant


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
    with pytest.raises(ValueError, match="over 2 prompts, this one has 3"):
        Constant(3).load_state_dict(Constant(2).state_dict())
