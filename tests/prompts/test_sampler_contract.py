"""Every sampler here keeps the contract; and the contract notices who does not."""

from functools import partial

import numpy as np
import pytest
from fixed_set_contract import FixedSetContract

from rollwise.beliefs import LatestPassRate
from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Uniform, Worth
from rollwise.prompts.testing import play


def curriculum(keys, batch_size, seed=0, **settings):
    return Curriculum(keys, batch_size, seed, levels=[5] * len(keys), **settings)


KINDS = {
    "uniform": Uniform,
    "curriculum": curriculum,
    "prioritized": Prioritized,
    "worth": Worth,
    "cdas": CDAS,
    "released": partial(CDAS, form="released_code", warmup_epochs=0),
    "calibrated": partial(CDAS, form="calibrated", target=0.4),
    "warmed up": partial(CDAS, warmup_epochs=2),
    "posterior": Posterior,
    "limited": partial(CDAS, visits=1000),
}


class TestSamplers(FixedSetContract):
    @pytest.fixture(autouse=True, params=KINDS.values(), ids=KINDS)
    def kind(self, request):
        self.of_kind = request.param

    def make(self, keys, batch_size, seed=0):
        return self.of_kind(keys, batch_size, seed)


class TestCurriculumWithEasyProblems(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        levels = [1 + i % 5 for i in range(len(keys))]
        return Curriculum(keys, batch_size, seed, levels=levels, min_level=3)

    def test_a_batch_may_be_the_whole_set(self):
        """Only of a set that is hard throughout."""

    def test_other_counts_can_be_asked_for(self):
        """Only as many as are hard."""

    def test_prompts_can_be_left_out(self):
        """Only where hard ones are left."""


def shared_rates(belief):
    return {"pass_rates": belief._pass_rates}


def twice_per_batch(sampler, count=None, exclude=()):
    batch = Uniform.ask(sampler, count, exclude)
    return [*batch[:-1], batch[0]]


def forgets_its_position(sampler, state):
    Uniform.load_state_dict(sampler, {**state, "walk.position": 0})


def without_leaving_out(sampler, count=None, exclude=()):
    return Uniform.ask(sampler, count)


def impossible_priors(sampler, keys):
    return Prioritized.pass_rate_priors(sampler, keys) - 1


SharedRates = type("SharedRates", (LatestPassRate,), {"state_dict": shared_rates})
RESUMES, FORECASTS = "a_state_resumes_exactly", "forecasts_where_there_are_any"
WRONG = [
    (Uniform, {"ask": twice_per_batch}, "a_batch_has_its_size_and_no_prompt_twice"),
    (Uniform, {"load_state_dict": forgets_its_position}, RESUMES),
    (Uniform, {"make_belief": lambda self: SharedRates(len(self.keys))}, RESUMES),
    (Uniform, {"ask": without_leaving_out}, "prompts_can_be_left_out"),
    (Prioritized, {"rng": lambda self: np.random.default_rng()}, "the_seed_decides"),
    (Prioritized, {"pass_rate_priors": impossible_priors}, FORECASTS),
]


@pytest.mark.parametrize(("base", "methods", "test"), WRONG)
def test_the_contract_notices(base, methods, test):
    class Suite(FixedSetContract):
        def make(self, keys, batch_size, seed=0):
            return type("Wrong", (base,), methods)(keys, batch_size, seed)

    with pytest.raises((AssertionError, ValueError)) as caught:
        getattr(Suite(), f"test_{test}")()
    assert str(caught.value), "it must say what is wrong"


def test_samplers_learn_from_what_they_are_told():
    """Other outcomes, other batches: the suite would pass a sampler that learns nothing."""
    for sampler in (Prioritized, CDAS, Posterior):
        first, second = sampler(range(40), 4), sampler(range(40), 4)
        assert play(first, 10) == play(second, 10) or sampler is not CDAS
        assert play(first, 20, seed=1) != play(second, 20, seed=2)


@pytest.mark.parametrize("name", KINDS)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    sampler, visits = KINDS[name](range(20), 4, visits=2), [0] * 20
    for _ in range(10):
        assert not sampler.exhausted
        batch = sampler.ask()
        for key in batch:
            visits[key] += 1
        sampler.tell(batch, [8] * len(batch), [8] * len(batch))
    assert visits == [2] * 20
    assert sampler.exhausted
    assert sampler.ask() == []


def test_visits_are_counted_on_after_resuming():
    before, after = (Uniform("abc", 1, visits=1) for _ in range(2))
    before.tell(["a"], [8], [8])
    after.load_state_dict(before.state_dict())
    assert sorted(after.ask(3)) == ["b", "c"]
    assert after.ask(3, exclude=["b"]) == ["c"]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (CDAS, {"form": "calibrated", "target": 0.0}, "^target must lie between 0 and 1, both"),
        (CDAS, {"target": 0.3}, "^target is a setting of the form 'calibrated', got 0.3"),
        (CDAS, {"warmup_epochs": -1}, "^warmup_epochs must be at least 0, got -1$"),
        (Posterior, {"target": 1.5}, "^target must lie between 0 and 1, got 1.5$"),
        (Posterior, {"decay": -0.1}, "^decay must lie between 0 and 1, got -0.1$"),
        (Worth, {"objective": "grpo"}, "objective must be one of linear, log, sqrt, arcsine"),
        (Worth, {"power": -1.0}, "power must be finite and at least 0, got -1.0"),
        (Worth, {"power": 600}, "power must be at most 100, got 600"),
        (Worth, {"exploration": 0.0}, "exploration must be above 0, at most 1, got 0.0"),
        (Uniform, {"decay": 1.5}, "^decay must lie between 0 and 1, got 1.5$"),
        (curriculum, {"uniform_epochs": np.nan}, "^uniform_epochs must be finite and at least 0"),
        (Uniform, {"visits": 0}, "^visits must be at least 1, got 0$"),
    ],
)
def test_settings_out_of_range_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind("abc", 2, **settings)
