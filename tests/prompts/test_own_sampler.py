"""Samplers that write `ask` and `tell` alone, and limits of visits around any sampler."""

import json

import numpy as np
import pytest

from rollwise import PromptSampler
from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Uniform, VisitLimit
from rollwise.prompts.testing import PromptSamplerContract


class InOrder(PromptSampler):
    """Asks for prompts in turn: those just told go to the end."""

    def __init__(self, keys, batch_size, seed=0):
        self.queue, self.batch_size = list(keys), batch_size
        np.random.default_rng(seed).shuffle(self.queue)

    def ask(self, count=None, exclude=()):
        allowed = [key for key in self.queue if key not in exclude]
        return allowed[: count or self.batch_size]

    def tell(self, keys, correct, drawn):
        told = set(keys)
        self.queue.sort(key=lambda key: key in told)


class Remembering(InOrder):
    """Keeps its queue over a resumed run."""

    def state_dict(self):
        return {"queue": json.dumps(self.queue)}

    def load_state_dict(self, state):
        self.queue = json.loads(state["queue"])


KINDS = {
    "in order": InOrder,
    "remembering": Remembering,
    "limited": lambda keys, n, seed: VisitLimit(Remembering(keys, n, seed), 1000, keys),
}


class TestOwnSamplers(PromptSamplerContract):
    @pytest.fixture(autouse=True, params=KINDS.values(), ids=KINDS)
    def kind(self, request):
        self.of_kind = request.param

    def make(self, keys, batch_size, seed=0):
        return self.of_kind(keys, batch_size, seed)


def test_a_state_that_it_cannot_load_is_refused():
    sampler = InOrder("abc", 1)
    with pytest.raises(ValueError, match=r"^InOrder has no load_state_dict, .* holds told$"):
        sampler.load_state_dict({"told": 3})
    assert sampler.state_dict() == {}


def test_a_limit_of_visits_leaves_out_by_keys_where_there_are_no_places():
    sampler = VisitLimit(InOrder("abcd", 2), 1, keys="abcd")
    sampler.tell(["a", "c"], [4, 4], [4, 4])
    assert sorted(sampler.ask()) == ["b", "d"]
    assert sampler.ask(2, exclude=["b"]) == ["d"]


WRAPPED = {
    "uniform": lambda: Uniform(range(20), 4),
    "curriculum": lambda: Curriculum(range(20), 4, levels=[5] * 20),
    "prioritized": lambda: Prioritized(range(20), 4),
    "cdas": lambda: CDAS(range(20), 4, warmup_epochs=0),
    "calibrated": lambda: CDAS(range(20), 4, form="calibrated", revisit_share=0.5),
    "posterior": lambda: Posterior(range(20), 4),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    sampler, visits = VisitLimit(WRAPPED[name](), 2), [0] * 20
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
    before, after = (VisitLimit(Uniform("ab", 1), 1) for _ in range(2))
    before.tell(["a"], [8], [8])
    after.load_state_dict(before.state_dict())
    assert after.ask() == ["b"]


def test_the_wrapped_sampler_learns():
    sampler, alone = VisitLimit(CDAS("abc", 1), 3), CDAS("abc", 1)
    for each in (sampler, alone):
        each.tell(["a", "c"], [3, 8], [8, 8])
    assert sampler.sampler.difficulty.tolist() == alone.difficulty.tolist()
    assert sampler.expected_pass_rates(["c"]) == alone.expected_pass_rates(["c"])
    priors = [each.pass_rate_priors(["c", "b"]).tolist() for each in (sampler, alone)]
    assert priors[0] == priors[1] != [[1, 1], [1, 1]]


def test_what_cannot_be_wrapped_is_refused():
    with pytest.raises(TypeError, match=r"^sampler must be a PromptSampler, got object$"):
        VisitLimit(object(), 1)
    with pytest.raises(TypeError, match=r"^InOrder has no attribute `keys`: say what"):
        VisitLimit(InOrder("abc", 1), 1)


def test_a_state_of_another_wrapped_sampler_is_refused():
    state = VisitLimit(Uniform("ab", 1), 1).state_dict()
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is Prioritized"):
        VisitLimit(Prioritized("ab", 1), 1).load_state_dict(state)
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is VisitLimit$"):
        VisitLimit(Uniform("ab", 1), 1).load_state_dict(Uniform("ab", 1).state_dict())
