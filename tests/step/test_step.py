"""A step as a whole."""

import numpy as np
import pytest

import rollwise as rw
from rollwise.beliefs import Constant
from rollwise.engines.engine import Completion
from rollwise.prompts import Uniform
from rollwise.step import RolloutCost, StepRecipe, take_step

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


def test_small_advantages_are_rounded_where_the_recipe_says_so():
    """A belief of ½ that is not moved gives advantages of ½ and −½; two of three become 0."""
    step = one_step(shift_beliefs=False, smallest_advantage=1.5)
    learned = [example.advantage for example in step.examples({key: [7] for key in KEYS})]
    assert set(learned) == {-1.5, 0.0, 1.5}
    trained = sum(advantage != 0 for advantage in learned)
    assert 4 < trained < 24
    assert step.metrics["ledger"]["draws"]["trained"] == trained
    assert step.metrics["ledger"]["draws"]["spare"] == 40 - trained
    assert sum(visit["trained"] for visit in step.visits) == trained


def test_the_smallest_advantage_is_not_negative():
    with pytest.raises(ValueError, match=r"smallest_advantage must be .* at least 0, got -0.1"):
        one_step(smallest_advantage=-0.1)
