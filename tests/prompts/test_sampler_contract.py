"""Every sampler here keeps the contract, which notices who does not; what fixed sets promise."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import rollwise as rw
from rollwise.beliefs import BELIEFS, Belief, LatestPassRate
from rollwise.beliefs.testing import assert_same, check_incomplete_states, refused
from rollwise.prompts import FixedSetSampler
from rollwise.prompts.testing import STRINGS, PromptSamplerContract, play


def curriculum(keys, batch_size, seed=0, **settings):
    return rw.Curriculum(keys, batch_size, seed, levels=[5] * len(keys), **settings)


class FixedSetContract(PromptSamplerContract):
    """Further tests, of subclasses of `FixedSetSampler`."""

    def test_keys_may_come_in_any_form(self):
        for forms in ((STRINGS, tuple(STRINGS), np.array(STRINGS)), (range(40), np.arange(40))):
            played = [play(self.make(keys, batch_size=4), self.steps) for keys in forms]
            assert all(batches == played[0] for batches in played)

    def test_a_state_of_other_prompts_and_a_part_of_one_are_refused(self):
        sampler = self.make(STRINGS, batch_size=4)
        play(sampler, 3)
        fewer = self.make(STRINGS[:-1], batch_size=4)
        refused(lambda: fewer.load_state_dict(sampler.state_dict()), "40", "39")
        other = self.make([*STRINGS[:-1], "another"], batch_size=4)
        before = other.state_dict()
        refused(lambda: other.load_state_dict(sampler.state_dict()), "fingerprint")
        assert_same(other.state_dict(), before)
        check_incomplete_states(self.make(STRINGS, batch_size=4), sampler.state_dict())

    def test_tell_takes_arrays_and_prompts_without_draws_teach_nothing(self):
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        sampler.tell(STRINGS[3:7], correct=[1, 0, 4, 0], drawn=[4, 0, 4, 0])
        other.tell(np.array(STRINGS[3:7:2]), np.array([1.0, 4.0]), np.array([4, 4]))
        sampler.tell(STRINGS[:4], correct=[0] * 4, drawn=[0] * 4)
        sampler.tell([], correct=[], drawn=[])
        assert_same(sampler.state_dict(), other.state_dict())
        self.make(range(40), batch_size=4).tell(np.array([3, 4]), correct=[1, 1], drawn=[4, 4])

    def test_tell_refuses_what_cannot_be(self):
        sampler = self.make(STRINGS, batch_size=4)
        play(sampler, 3)
        before = sampler.state_dict()
        one, two = STRINGS[:2]
        for keys, correct, drawn, *named in (
            ([one, "nobody"], [1, 1], [4, 4], "'nobody'"),
            ([one, 7], [1, 1], [4, 4], "7"),
            ([one, two, one], [1, 1, 1], [4, 4, 4], repr(one), "twice"),
            ([one, two], [1, 5], [4, 4], repr(two), "4", "5"),
            ([one, two], [1, -1], [4, 4], repr(two), "-1"),
            ([one, two], [0, 0], [4, -4], repr(two), "-4"),
            ([one, two], [1], [4, 4], "correct", "drawn"),
            ([one, two], [1, 1], [4], "correct", "drawn"),
            ([one], [0.5], [4], "correct", "0.5"),
            ([one], [1], [math.nan], "drawn", "nan"),
        ):
            refused(partial(sampler.tell, keys, correct, drawn), *named)
        assert_same(sampler.state_dict(), before)

    def test_sets_that_cannot_be_and_unknown_keys_are_refused(self):
        for keys, size, *named in (
            (["a", "b", "a", "c"], 1, "'a'", "twice"),
            ([5, 6, 5], 1, "5", "twice"),
            (["a", 1.5], 1, "1.5"),
            (["a", True], 1, "True"),
            (["a", "b"], 3, "batch_size", "2", "3"),
            ([], 1, "batch_size", "0", "1"),
            (["a", "b"], 0, "batch_size", "0"),
        ):
            refused(partial(self.make, keys, batch_size=size), *named)
        sampler = self.make(STRINGS, batch_size=4)
        for verb in (
            sampler.expected_pass_rates,
            sampler.pass_rate_priors,
            partial(sampler.ask, 1),
        ):
            refused(partial(verb, ["nobody"]), "among the 40 prompts", "'nobody'")


class FirstOfAll(FixedSetSampler):
    """The least that a sampler of one's own must write."""

    def choose(self, count, exclude):
        return np.flatnonzero(~exclude)[:count]


KINDS = {
    "own": FirstOfAll,
    "uniform": rw.Uniform,
    "curriculum": curriculum,
    "prioritized": rw.Prioritized,
    "worth": rw.Worth,
    "cdas": rw.CDAS,
    "released": partial(rw.CDAS, form="released_code", warmup_epochs=0),
    "calibrated": partial(rw.CDAS, form="calibrated", target=0.4),
    "warmed up": partial(rw.CDAS, warmup_epochs=2),
    "posterior": rw.Posterior,
    "limited": partial(rw.CDAS, visits=1000),
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
        return rw.Curriculum(keys, batch_size, seed, levels=levels, min_level=3)

    # A batch has only hard prompts, so these hold only of a set that is hard throughout.
    test_a_batch_may_be_the_whole_set = None
    test_other_counts_can_be_asked_for = None
    test_prompts_can_be_left_out = None


def shared_rates(belief):
    return {"pass_rates": belief._pass_rates}


def twice_per_batch(sampler, count=None, exclude=()):
    batch = rw.Uniform.ask(sampler, count, exclude)
    return [*batch[:-1], batch[0]]


def forgets_its_position(sampler, state):
    rw.Uniform.load_state_dict(sampler, {**state, "epochs.position": 0})


SharedRates = type("SharedRates", (LatestPassRate,), {"state_dict": shared_rates})
RESUMES, FORECASTS = "a_state_resumes_exactly", "forecasts_where_there_are_any"
WRONG = [
    (rw.Uniform, {"ask": twice_per_batch}, "a_batch_has_its_size_and_no_prompt_twice"),
    (rw.Uniform, {"load_state_dict": forgets_its_position}, RESUMES),
    (rw.Uniform, {"make_belief": lambda self: SharedRates(len(self.keys))}, RESUMES),
    (
        rw.Uniform,
        {"ask": lambda self, n=None, exclude=(): rw.Uniform.ask(self, n)},
        "prompts_can_be_left_out",
    ),
    (rw.Prioritized, {"rng": lambda self: np.random.default_rng()}, "the_seed_decides"),
    (rw.Prioritized, {"pass_rate_priors": lambda self, keys: np.zeros((len(keys), 2))}, FORECASTS),
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
    for sampler in (rw.Prioritized, rw.CDAS, rw.Posterior):
        first, second = sampler(range(40), 4), sampler(range(40), 4)
        assert play(first, 10) == play(second, 10)
        assert play(first, 20, seed=1) != play(second, 20, seed=2)


@pytest.mark.parametrize("name", KINDS)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    """Also after resuming."""
    sampler, visits = KINDS[name](range(20), 4, visits=2), [0] * 20
    for _ in range(10):
        assert not sampler.exhausted
        state, sampler = sampler.state_dict(), KINDS[name](range(20), 4, visits=2)
        sampler.load_state_dict(state)
        batch = sampler.ask()
        for key in batch:
            visits[key] += 1
        sampler.tell(batch, [8] * len(batch), [8] * len(batch))
    assert visits == [2] * 20
    assert sampler.exhausted
    assert sampler.ask() == []


@dataclass(eq=False)
class AllTime(Belief):
    """The least that a belief of one's own must write."""

    def __post_init__(self):
        self.counts = np.zeros((self.total, 2))

    def believe(self, indices):
        correct, drawn = self.counts[indices].T
        return (correct + 1) / (drawn + 2), drawn

    def learn(self, indices, correct, drawn):
        self.counts[indices] += np.stack([correct, drawn], axis=1)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("belief", [AllTime, *BELIEFS.values()])
def test_any_belief_goes_with_any_choice(name, belief):
    """The sampler answers what the belief does, and teaches it."""
    known = belief(20)
    sampler = KINDS[name](range(20), 4, belief=known)
    for _ in range(6):
        batch = sampler.ask()
        assert len(set(batch)) == 4
        sampler.tell(batch, [index * 4 // 20 for index in batch], [4] * 4)
    indices = np.arange(3, 15)
    expected = known.mean(indices).astype(float)
    assert np.array_equal(sampler.expected_pass_rates(indices), expected, equal_nan=True)
    assert sampler.pass_rate_priors(indices).tolist() == known.priors(indices).tolist()
    assert known.metrics().items() <= sampler.metrics().items()


def test_the_choice_follows_the_belief_that_it_is_given():
    """Expected are 1/6 to 5/6 in steps of 1/12; half just above 0.4 come, half just below."""
    belief = AllTime(9)
    belief.learn(np.arange(9), np.arange(9) / 2, np.full(9, 4))
    harder, easier = [1, 2], [3, 4]
    assert rw.CDAS(range(9), 4, belief=belief, warmup_epochs=0, target=0.4).ask() == harder + easier


HARD, EASY = (rw.Curriculum("abc", 1, levels=[4, level, 1]) for level in (4, 1))
UNIFORM, LIMITED = rw.Uniform("abc", 1), rw.Uniform("abc", 1, visits=1)
LATEST = rw.Uniform("abc", 1, belief=LatestPassRate(3))
PAPER, CALIBRATED = rw.CDAS("abc", 1), rw.CDAS("abc", 1, form="calibrated")


@pytest.mark.parametrize(
    ("sampler", "state", "message"),
    [
        (UNIFORM, LATEST.state_dict(), "its belief is 'LatestPassRate', not 'DecayedBeta'$"),
        (PAPER, UNIFORM.state_dict(), "or of other prompts: its sampler is 'Uniform', not 'CDAS'$"),
        (PAPER, {"asks": 3}, "^the state lacks 'sampler'; it has asks$"),
        (CALIBRATED, PAPER.state_dict(), "another belief: its form is 'paper', not 'calib"),
        (EASY, HARD.state_dict(), r"to other prompts: 'hard_epochs\.order'"),
        (LIMITED, UNIFORM.state_dict(), "^the state lacks 'visited'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(sampler, state, message):
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(state)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (rw.CDAS, {"form": "calibrated", "target": 0.0}, r"^target must lie in \(0, 1\)"),
        (rw.CDAS, {"target": 0.3}, "^target is a setting of the form 'calibrated', got 0.3"),
        (rw.CDAS, {"warmup_epochs": -1}, "^warmup_epochs must be at least 0, got -1$"),
        (rw.Posterior, {"target": 1.5}, r"^target must lie in \[0, 1\], got 1.5$"),
        (rw.Posterior, {"exploration": 1.5}, r"^exploration must lie in \[0, 1\], got 1.5$"),
        (rw.Worth, {"objective": "grpo"}, "objective must be one of linear, log, sqrt, arcsine"),
        (rw.Worth, {"power": 600}, r"power must lie in \[0, 100\], got 600"),
        (rw.Worth, {"exploration": 0.0}, r"exploration must lie in \(0, 1\], got 0.0"),
        (rw.Uniform, {"decay": 1.5}, r"^decay must lie in \[0, 1\], got 1.5$"),
        (rw.Uniform, {"visits": 0}, "^visits must be at least 1, got 0$"),
        (rw.Uniform, {"belief": AllTime(4)}, r"as many prompts as there are \(3\), got one of 4$"),
        (curriculum, {"uniform_epochs": np.nan}, r"^uniform_epochs must lie in \[0, inf\)"),
        (rw.Curriculum, {"levels": [4, 4]}, "^levels must have one entry for each of the 3 prom"),
        (rw.Curriculum, {"levels": [4, None, 3]}, r"of level 4 or above \(1\), got 2$"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind("abc", 2, **settings)


def test_a_fingerprint_is_of_the_keys_and_their_order():
    sets = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"], [0, 1], [1, 0], ["0", "1"], ["1", "0"]]
    assert len({rw.Uniform(keys, 1).fingerprint for keys in sets}) == len(sets)
    assert rw.Uniform(np.arange(2), 1).fingerprint == rw.Uniform([0, 1], 1).fingerprint
    # The same in every process and release, or states could not be loaded.
    assert rw.Uniform(["a", "b", 1], 1).fingerprint == "b3e03f9c9a09fd58"


def test_a_belief_without_a_state_starts_anew_and_says_so(caplog):
    sampler, other = (rw.Uniform("abc", 1, belief=AllTime(3)) for _ in range(2))
    sampler.ask()
    other.load_state_dict(sampler.state_dict())
    assert other.asks == 1
    assert "AllTime has no saved state: it starts over" in caplog.text


def test_a_sampler_that_keeps_no_state_refuses_one():
    class InOrder(rw.PromptSampler):
        def ask(self, count=None, exclude=()):
            return ["a"]

        def tell(self, keys, correct, drawn): ...

    assert InOrder().state_dict() == {}
    with pytest.raises(ValueError, match=r"^InOrder has no load_state_dict, .* holds told$"):
        InOrder().load_state_dict({"told": 3})
