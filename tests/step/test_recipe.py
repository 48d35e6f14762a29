"""The recipe of a step: its defaults, what it refuses, and that settings make it whole."""

import pytest
from rolled import rolled

import rollwise as rw
from rollwise.errors import PluginError
from rollwise.step import StepRecipe, take_step


def test_by_default_half_a_group_of_each_kind_with_an_allocation_its_counts_in_one_round():
    by_group, by_counts = StepRecipe(group_size=6), StepRecipe(allocation=rw.GVM(4, maximum=12))
    assert by_group.resolved_exit_rule == rw.Balanced(3, 3)
    assert by_group.resolved_schedule == rw.Rounds(8, 4)
    assert by_counts.resolved_exit_rule == rw.FixedCount(12)
    assert by_counts.resolved_schedule == rw.Rounds(12, rounds=1)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("size` must be even", {"group_size": 3}),
        ("zero_variance", {"zero_variance": "forget"}),
        ("refills", {"refills": 0}),
        (
            "zero_variance",
            {"exit_rule": rw.FixedCount(1), "schedule": rw.Rounds(1, 1), "objective": "reward"},
        ),
        ("objective", {"objective": "median"}),
        ("scale_by_std", {"objective": "log", "scale_by_std": True}),
        ("zero_variance", {"allocation": rw.GVM(mean_draws=4), "zero_variance": "refill"}),
    ],
)
def test_what_cannot_be_combined_is_refused(said, given):
    with pytest.raises(ValueError, match=said):
        StepRecipe(**given)


def test_a_step_tells_the_sampler_all_that_was_drawn():
    """Rewards 1 0 1 0 … of each prompt: 4 of 8 are correct, and the group is balanced."""
    sampler = rw.Posterior(["a", "b"], batch_size=2)
    step = take_step(StepRecipe(), sampler, rolled(lambda draw: draw.index % 2 == 0), 1)
    assert [group.advantages.tolist() for group in step.groups] == [[0.5, -0.5, 0.5, -0.5]] * 2
    assert (step.metrics["draws"], step.metrics["tokens"]) == (16, 48)
    assert "entropy" not in step.metrics
    same = rw.Posterior(["a", "b"], batch_size=2)
    same.tell(["a", "b"], correct=[4, 4], drawn=[8, 8])
    assert sampler.expected_pass_rates(["a", "b"]) == pytest.approx(
        same.expected_pass_rates(["a", "b"])
    )


class Answering(rw.Uniform):
    """Answers with what it is given, whatever is asked."""

    def __init__(self, answer):
        super().__init__(["a", "b"], batch_size=2)
        self.answer = answer

    def ask(self, count=None, exclude=()):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "a list of keys, got NoneType: None"),
        ("ab", "a list of keys, got str: 'ab'"),
        ([["a"]], r"keys, which are strings and integers, got list: \['a'\]"),
        (["a", "a"], "each key once, got str: 'a'"),
        ([], "at least one prompt for a step"),
        (["a"], "no key that is excluded, got str: 'a'"),  # by the refill
    ],
)
def test_an_answer_that_is_no_list_of_keys_names_the_sampler(answer, said):
    recipe, roll_out = StepRecipe(zero_variance="refill"), rolled(lambda draw: 0)
    with pytest.raises(PluginError, match=rf"Answering: `ask` \(.*, line \d+\) must return {said}"):
        take_step(recipe, Answering(answer), roll_out, 1)


def test_a_refill_takes_no_more_from_a_sampler_that_runs_out():
    class Emptied(Answering):
        exhausted = property(lambda self: not self.answer)

        def ask(self, count=None, exclude=()):
            self.answer, given = [], self.answer
            return given

    recipe, roll_out = StepRecipe(zero_variance="refill"), rolled(lambda draw: 0)
    assert len(take_step(recipe, Emptied(["a"]), roll_out, 1).groups) == 1


KEYS = [f"q{i}" for i in range(40)]


def test_what_is_no_response_is_named():
    roll_out = rolled(lambda draw: 1, lambda draw: "text")
    with pytest.raises(TypeError, match=r"a `rollwise.step.Response`, got str: 'text'"):
        take_step(StepRecipe(normalize_gradients=True), rw.Uniform(KEYS, 40), roll_out, 1)
