"""Samplers that write `ask` and `tell` alone."""

import json

import numpy as np
import pytest

from rollwise import PromptSampler
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
