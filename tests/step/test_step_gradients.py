"""Advantages scaled by what the engine reported of each response."""

import numpy as np
import pytest

from rollwise.errors import EngineError
from rollwise.sampling import Pool
from rollwise.step import Response, StepRecipe, make_group
from rollwise.step.groups import normalize_gradients, score_norm
from rollwise.step.step import make_groups

HALF, SURE = np.log(0.5), np.log(0.9)


def single(logprobs, reward=1.0, known=True):
    """A prompt with one response, whose advantage is its reward."""
    reported = np.array(logprobs if known else [], np.float32)
    return group_of(Response(range(len(logprobs)), reported), reward)


def group_of(response, reward=1.0):
    recipe = StepRecipe(objective="reward", strategy="all", zero_variance="keep")
    return make_group(recipe, Pool("q", [reward], [response]))


def advantages(groups):
    return [float(group.advantages[0]) for group in groups]


def test_the_norm_of_a_score_by_hand():
    """1 − π is ½, ½ and 0.1: √(¼ + ¼ + 0.01); averaged by response, a third of it."""
    [drawn], [empty] = single([HALF, HALF, SURE]).responses, single([]).responses
    norm = np.sqrt(0.51)
    assert score_norm(drawn.figures, "tokens") == pytest.approx(norm)
    assert score_norm(drawn.figures, "responses") == pytest.approx(norm / 3)
    assert score_norm(empty.figures, "responses") == 0


def test_normalized_gradients_are_as_large_as_advantages():
    """Norms 0.5, 1, 0.1 and 0.001, and one that teaches nothing: the median of four is 0.3."""
    drawn = [([HALF], 1.0), ([HALF] * 4, -2.0), ([SURE], 1.0), ([np.log(0.999)], 1.0), ([HALF], 0)]
    recipe, groups = StepRecipe(normalize_gradients=True), [single(*each) for each in drawn]
    scaled = advantages(make_groups(recipe, groups, lambda group: group))
    assert scaled == pytest.approx([0.6, -0.6, 3.0, 10.0, 0.0], rel=1e-5)


def test_only_what_the_model_drew_counts_in_an_episode():
    mask = np.array([True, False, False, False])
    episode = group_of(Response([1, 7, 8, 9], [HALF, 0.0, 0.0, 0.0], mask=mask))
    scaled = normalize_gradients([episode, single([HALF]), single([HALF])], "responses")
    assert advantages(scaled) == pytest.approx([1.0, 1.0, 1.0])


def test_a_step_that_teaches_nothing_stays_as_it_is():
    groups = [single([HALF], reward=0.0)]
    assert advantages(normalize_gradients(groups, "tokens")) == [0.0]
    assert normalize_gradients([], "tokens") == []


def test_an_engine_that_reports_no_logprobs_is_refused():
    with pytest.raises(EngineError, match="the engine reported none"):
        normalize_gradients([single([HALF], known=False)], "tokens")
