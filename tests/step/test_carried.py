"""What is under way when a step ends goes on in the next: nothing is lost, nothing counts twice."""

import json
from collections import Counter

import pytest

import rollwise as rw
from rollwise.config import make_config
from rollwise.config.step import step_recipe
from rollwise.engines.rollout import run_session
from rollwise.engines.simulated import Lengths, SimulatedEngine
from rollwise.errors import ConfigError
from rollwise.step import Carried, StepRecipe, take_step

KEYS = list(range(500))
SINGLE = {
    "exit_rule": rw.FixedCount(1),
    "objective": "linear",
    "baseline": "belief",
    "strategy": "all",
    "group_size": 1,
    "carry_over": True,
}
GROUPS = {"exit_rule": rw.Balanced(1, 1), "group_size": 2, "carry_over": True}


class Engine(SimulatedEngine):
    """Notes how many draws are under way each time it is waited for, and each draw's length."""

    def __init__(self, slots=8, sigma=1.5):
        super().__init__({key: (key % 9 + 1) / 10 for key in KEYS}, Lengths(20, sigma, 4000), slots)
        self.under_way, self.lengths_of = [], {}

    def wait(self):
        self.under_way.append(self.slots - self.free_slots)
        done = super().wait()
        self.lengths_of |= {completion.draw: len(completion.tokens) for completion in done}
        return done


class Listening(rw.Uniform):
    """Notes what it is told."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.told = []

    def tell(self, keys, correct, drawn):
        super().tell(keys, correct, drawn)
        self.told += zip(keys, correct, drawn, strict=True)


def run_steps(count, engine, sampler=None, again_after=(), **recipe):
    """Take steps; returns them. After some, the engine forgets what is under way."""
    recipe = StepRecipe(**recipe)
    sampler = sampler or Listening(KEYS, 8)
    steps, carried = [], None

    def roll_out(session, supply):
        return run_session(session, engine, {}, engine.grade, supply)

    for number in range(1, count + 1):
        steps.append(take_step(recipe, sampler, roll_out, number, carried))
        carried = steps[-1].carried
        if carried is not None:
            assert steps[-1].metrics["carried_draws"] == len(carried.in_flight)
        if number in again_after:
            engine.cancel(carried.in_flight)
            carried = Carried.from_state(json.loads(json.dumps(carried.state())))
    return steps


def trained(steps):
    return [pool for step in steps for pool in step.rollouts.pools]


@pytest.mark.parametrize("kind", [SINGLE, GROUPS], ids=["single", "groups"])
@pytest.mark.parametrize("tokens", [None, 400])
@pytest.mark.parametrize("again_after", [(), (3, 4, 7)])
def test_every_draw_is_trained_on_once_or_still_under_way(kind, tokens, again_after):
    engine, sampler = Engine(), Listening(KEYS, 8)
    steps = run_steps(9, engine, sampler, again_after, tokens=tokens, **kind)
    pools = trained(steps)
    keys = Counter(pool.key for pool in pools)
    left = {prompt.pool.key for prompt in steps[-1].carried.under_way.prompts}
    assert set(keys.values()) == {1}
    assert left.isdisjoint(keys)
    # Uniform goes by its order, so that a prompt that was lost on the way would be missing.
    assert {*keys} | left == {*rw.Uniform(KEYS, 8).ask(len(keys) + len(left))}
    assert sorted(sampler.told) == sorted((p.key, p.positives, len(p)) for p in pools)
    if not again_after:
        draws = {response.draw for pool in pools for response in pool.responses}
        waiting = sum(len(p.pool) + len(p.waiting) for p in steps[-1].carried.under_way.prompts)
        surplus = sum(step.metrics["surplus_draws"] for step in steps)
        assert len(draws) + waiting <= len(engine.lengths_of) <= len(draws) + waiting + surplus
        assert sum(step.metrics["tokens"] for step in steps) == engine.tokens


def test_no_slot_is_idle_between_steps_and_each_step_has_its_tokens():
    engine = Engine()
    steps = run_steps(20, engine, tokens=400, max_steps_off_policy=99, **SINGLE)
    assert set(engine.under_way) == {8}
    longest = max(engine.lengths_of.values())
    assert all(400 <= step.metrics["tokens"] < 400 + longest for step in steps)
    awaited = Engine()
    run_steps(20, awaited, tokens=400, **SINGLE | {"carry_over": False})
    assert engine.busy / engine.now > 1.2 * awaited.busy / awaited.now


def test_without_tokens_a_step_ends_when_as_many_prompts_have_ended_as_it_has():
    steps = run_steps(6, Engine(sigma=1.0), **SINGLE)
    # What ends at the same instant as the eighth counts as well.
    prompts = [step.metrics["prompts"] for step in steps]
    assert set(prompts) <= {8, 9, 10}, prompts


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_response_is_older_than_allowed_and_old_ones_are_awaited(most):
    steps = run_steps(60, Engine(), tokens=200, max_steps_off_policy=most, **SINGLE)
    ages = [step.metrics["steps_off_policy"] for step in steps]
    assert max(ages) == most
    for number, step in enumerate(steps, start=1):
        assert max(number - pool.begun for pool in step.rollouts.pools) == ages[number - 1]


def test_a_carried_response_is_compared_with_what_was_believed_before_it_was_drawn():
    """The belief moves with every step, and the baseline of a carried response does not."""
    sampler, believed = Listening(KEYS, 8), {}
    ask = sampler.ask

    def asking(*arguments, **named):
        sampler.tell(KEYS, [3] * len(KEYS), [4] * len(KEYS))  # nobody's belief stays as it was
        keys = ask(*arguments, **named)
        believed.update(zip(keys, map(tuple, sampler.pass_rate_priors(keys)), strict=True))
        return keys

    sampler.ask = asking
    steps = run_steps(12, Engine(), sampler, (5,), tokens=200, shift_beliefs=False, **SINGLE)
    carried = [
        (step, group)
        for number, step in enumerate(steps, start=1)
        for group in step.groups
        if group.pool.begun < number
    ]
    assert len(carried) > 5
    for _, group in carried:
        alpha, beta = believed[group.pool.key]
        assert group.pool.prior == pytest.approx((alpha, beta))
        wanted = group.pool.rewards[0] - alpha / (alpha + beta)
        assert group.advantages[0] == pytest.approx(wanted)


def test_what_begins_again_has_the_seeds_that_it_had():
    """A simulated response depends on its seed alone, so the same draws end either way."""
    found = []
    for again_after in ((), (2, 5)):
        steps = run_steps(8, Engine(), None, again_after, tokens=300, **SINGLE)
        found.append({pool.key: pool.responses[0].draw.seed for pool in trained(steps[:6])})
    shared = found[0].keys() & found[1].keys()
    assert len(shared) > 30
    assert sum(found[0][key] == found[1][key] for key in shared) > 0.8 * len(shared)


CARRIES = {"step": {"carry_over": True}}


def test_settings_carry_over_and_stream_by_default():
    recipe = step_recipe(make_config(CARRIES))
    assert recipe.carry_over
    assert recipe.schedule == rw.Streamed()
    assert not step_recipe(make_config()).carry_over


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("`schedule.type` must stream", {"schedule": {"type": "rounds"}}),
        ("`backend.type` must be `local`", {"backend": {"type": "tinker"}}),
        ("`learner.importance_cap` must be above 0", {"learner": {"importance_cap": 0}}),
        ("`step.max_steps_off_policy`", {"step": {"carry_over": True, "max_steps_off_policy": 0}}),
    ],
)
def test_settings_that_exclude_carrying_over_are_named(said, given):
    with pytest.raises(ConfigError, match=said):
        make_config(CARRIES | given)
