"""Steps that end with their tokens: prompts are asked for as slots get free."""

import re
from concurrent.futures import Future

import pytest

import rollwise as rw
from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.engines.rollout import run_session
from rollwise.engines.simulated import CORRECT, Lengths, SimulatedEngine
from rollwise.errors import ConfigError
from rollwise.step import RolloutCost, StepRecipe, take_step

KEYS = list(range(400))
SINGLE = {
    "exit_rule": rw.FixedCount(1),
    "objective": "linear",
    "baseline": "belief",
    "strategy": "all",
    "group_size": 1,
}


def roll_out_with(engine, make_future=Future):
    def grade(completions):
        rewards = [make_future() for _ in completions]
        for completion, reward in zip(completions, rewards, strict=True):
            reward.set_result(float(completion.text == CORRECT))
        return rewards

    return lambda session, supply: run_session(session, engine, {}, grade, supply)


def make_engine(slots=64, sigma=0.0):
    lengths = Lengths(median=10, sigma=sigma, longest=1000)
    return SimulatedEngine({key: (key % 10) / 9 for key in KEYS}, lengths, slots)


def step_of(tokens, batch_size=8, slots=64, sigma=0.0, sampler=None, **recipe):
    sampler = sampler or rw.Worth(KEYS, batch_size)
    recipe = StepRecipe(tokens=tokens, **SINGLE | recipe)
    return take_step(recipe, sampler, roll_out_with(make_engine(slots, sigma)), 1)


@pytest.mark.parametrize(("tokens", "prompts"), [(1, 8), (80, 8), (81, 9), (305, 31)])
def test_responses_of_ten_tokens_are_drawn_until_they_make_up_the_step(tokens, prompts):
    """The first eight prompts are always drawn; then ⌈tokens / 10⌉ in all."""
    step = step_of(tokens)
    assert step.metrics["prompts"] == step.metrics["draws"] == prompts
    assert step.metrics["tokens"] == 10 * prompts
    assert len({pool.key for pool in step.rollouts.pools}) == prompts
    assert {len(pool) for pool in step.rollouts.pools} == {1}


class Watched(SimulatedEngine):
    """Notes how many draws are under way each time it is waited for."""

    def wait(self):
        self.under_way = [*getattr(self, "under_way", []), self.slots - self.free_slots]
        return super().wait()


@pytest.mark.parametrize("slots", [3, 8, 64])
def test_as_many_prompts_stay_under_way_until_the_rest_is_spent(slots):
    """No slot waits for another's response: eight, or as many as there are slots, then the end."""
    engine = Watched({key: 0.5 for key in KEYS}, Lengths(10, 1.0, 1000), slots)
    sampler = rw.Uniform(KEYS, 8)
    step = take_step(StepRecipe(tokens=2000, **SINGLE), sampler, roll_out_with(engine), 1)
    busy = min(slots, 8)
    ends = next(i for i, count in enumerate(engine.under_way) if count < busy)
    assert ends > 50
    assert engine.under_way[ends:] == sorted(engine.under_way[ends:], reverse=True)
    # All that was begun is trained on, however long it took.
    assert engine.prefilled == step.metrics["draws"] == step.metrics["trained_groups"]
    assert step.metrics["tokens"] == engine.tokens
    assert 1800 < engine.tokens < 2400


def test_groups_are_drawn_to_their_ends():
    step = step_of(
        2000,
        exit_rule=rw.Balanced(1, 1),
        baseline="pool",
        strategy="balanced",
        group_size=2,
        sampler=rw.Uniform(KEYS, 8),
    )
    # At most eight prompts are under way when the rest is spent, of 32 draws of ten tokens each.
    assert 1800 < step.metrics["tokens"] < 2000 + 8 * 320
    assert len(step.rollouts.pools) > 16
    assert step.rollouts.session.done
    assert all(pool.exit_reason for pool in step.rollouts.pools)


def test_draws_end_a_step_before_its_tokens_do():
    assert step_of(10_000, total_draws=20).metrics["draws"] == 20


def test_a_sampler_that_has_no_further_prompts_ends_a_step(caplog):
    few = rw.Uniform(KEYS[:30], 8)
    assert step_of(10_000, sampler=few).metrics["draws"] == 30
    assert "the prompt sampler has no further prompts" in caplog.text


class Unhurried(Future):
    """A reward that is not there yet when it is asked for first."""

    asked = False

    def done(self):
        asked, self.asked = self.asked, True
        return asked


@pytest.mark.parametrize("rule", [rw.FixedCount(1), rw.Balanced(1, 1)])
def test_the_prompts_of_a_step_do_not_depend_on_how_long_grading_takes(rule):
    found = []
    for kind in (Future, Unhurried):
        recipe = StepRecipe(**SINGLE | {"tokens": 1000, "exit_rule": rule})
        roll_out = roll_out_with(make_engine(16, 1.0), kind)
        step = take_step(recipe, rw.Uniform(KEYS, 8, seed=1), roll_out, 1)
        found.append([(pool.key, len(pool)) for pool in step.rollouts.pools])
    assert found[0] == found[1]


def test_each_response_is_compared_with_what_was_believed_when_its_prompt_was_asked_for():
    sampler = rw.Worth(KEYS, 8)
    sampler.tell(KEYS, [key % 3 for key in KEYS], [2] * len(KEYS))
    before = sampler.pass_rate_priors(KEYS)
    for pool in step_of(1000, sampler=sampler).rollouts.pools:
        assert pool.prior == tuple(before[pool.key])


def test_a_loop_that_cannot_add_prompts_is_told_what_its_function_must_take():
    with pytest.raises(TypeError, match="roll_out must take a session and a PromptSupply"):
        recipe = StepRecipe(tokens=100, **SINGLE)
        take_step(recipe, rw.Uniform(KEYS, 8), lambda session: RolloutCost(), 1)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("tokens must be at least 1, got 0", {"tokens": 0}),
        (r"tokens needs a schedule that streams.*Rounds\(size=8", {"schedule": rw.Rounds()}),
        ("cannot be combined with an allocation", {"allocation": rw.Estimated(mean_draws=2)}),
        ("cannot be combined with unresolved='refill'", {"unresolved": "refill"}),
    ],
)
def test_recipes_whose_prompts_must_be_known_beforehand_are_refused(said, given):
    streamed = {"tokens": 100, "schedule": rw.Streamed()}
    with pytest.raises(ValueError, match=said):
        StepRecipe(**streamed | given)


TOKENS = {"step": {"tokens": 500}}


def test_with_tokens_the_schedule_streams_unless_another_is_given():
    assert step_recipe(make_config(TOKENS)).schedule == rw.Streamed()
    singles = make_config(
        TOKENS
        | {"exit": {"type": "fixed_count", "samples": 1}, "advantage": {"baseline": "belief"}}
    )
    assert step_recipe(singles).schedule == rw.Streamed()
    assert step_recipe(singles).tokens == 500
    assert make_config({"step": {"tokens": None}}).schedule.type == "rounds"


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("schedule.type", {"schedule": {"type": "rounds"}}),
        (
            "allocation.type",
            {"allocation": {"type": "estimated"}, "schedule": {"type": "streamed"}},
        ),
        ("group.unresolved", {"group": {"unresolved": "refill"}}),
        ("prompts.uniform_steps", {"prompts": {"type": "curriculum", "uniform_steps": 3}}),
        ("step.tokens", {"step": {"tokens": 0}}),
    ],
)
def test_settings_that_need_the_prompts_beforehand_are_named(key, given):
    with pytest.raises(ConfigError, match=f"`{re.escape(key)}`"):
        make_config(TOKENS | given)
