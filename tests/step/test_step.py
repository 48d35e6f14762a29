"""A step as a whole."""

import numpy as np
import pytest

import rollwise as rw
from rollwise.beliefs import Constant
from rollwise.prompts import Uniform
from rollwise.step import SINGLE_RESPONSES, RolloutCost, StepRecipe, take_step
from rollwise.step.outcomes import Completion

KEYS = [f"q{i}" for i in range(40)]


def one_step(**recipe):
    """Every fourth prompt is solved, each by a single response."""

    def roll_out(session):
        while draws := session.next_draws():
            for draw in draws:
                correct = float(KEYS.index(draw.key) % 4 == 0)
                session.record(
                    draw, correct, Completion(draw, [1], np.zeros(1, np.float32), "", False)
                )
        return RolloutCost()

    single = StepRecipe(
        exit_rule=rw.FixedCount(1),
        schedule=rw.Rounds(1, rounds=1),
        objective="linear",
        baseline="belief",
        strategy="all",
        group_size=1,
        **recipe,
    )
    sampler = Uniform(KEYS, 40, belief=Constant(40))
    return take_step(single, sampler, roll_out, 1)


@pytest.mark.parametrize("shifts", [True, False])
def test_beliefs_are_shifted_unless_the_recipe_says_otherwise(shifts):
    """The pass rate is believed to be a half and is a quarter."""
    step = one_step(shift_beliefs=shifts)
    total = sum(group.advantages[0] for group in step.groups)
    if shifts:
        assert total == pytest.approx(0, abs=2)
    else:
        assert total == pytest.approx(-10)
    assert {visit["expected"] for visit in step.visits} == {0.5}


def test_a_response_that_lacks_what_a_step_needs_is_named():
    def roll_out(session):
        while draws := session.next_draws():
            for draw in draws:
                session.record(draw, 1.0, "text")
        return RolloutCost()

    lacks = r"a response must have .* \(rollwise.step.Response\); str lacks tokens, logprobs, trunc"
    with pytest.raises(TypeError, match=lacks):
        take_step(StepRecipe(**SINGLE_RESPONSES), Uniform(KEYS, 40), roll_out, 1)
