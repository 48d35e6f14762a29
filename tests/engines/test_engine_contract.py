"""Our engines against the contract, and broken ones that it must catch."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tiny_models import LIMIT, PROMPTS, make_model, make_tokenizer

from rollwise import engines
from rollwise.engines import Engine
from rollwise.engines.testing import EngineContract
from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import PluginError
from rollwise.simulate.engine import Lengths, SimulatedEngine


@pytest.mark.usefixtures("each_way")
class TestBuiltIn(EngineContract):
    prompts = PROMPTS

    def make(self):
        return TransformersEngine(make_model(), make_tokenizer(), LIMIT, batch_size=5)

    def weights(self):
        return make_model(seed=1).state_dict()


class SimulatedContract(EngineContract):
    engine_class = SimulatedEngine

    def make(self):
        lengths = Lengths(median=20, sigma=0.5, longest=100, incorrect_factor=2.0)
        return self.engine_class({"short": 0.5, "long": 0.2}, lengths, slots=5)


class TestSimulated(SimulatedContract):
    pass


class Sociable(SimulatedEngine):
    """Adds a token for each response in flight."""

    def _advance(self):
        running = len(self._running)
        ended = super()._advance()
        return [(d, replace(r, tokens=[*r.tokens, *[0] * running], logprobs=())) for d, r in ended]


class Resentful(SimulatedEngine):
    """Answers what was cancelled with a token more."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.cancelled = set()

    def _abandon(self, draw):
        self.cancelled.add(draw)
        return super()._abandon(draw)

    def respond(self, draw):
        response = super().respond(draw)
        more = [0] * (draw in self.cancelled)
        return replace(response, tokens=[*response.tokens, *more], logprobs=())


class Stubborn(SimulatedEngine):
    """Answers also when it is told that no answer is wanted."""

    async def complete(self, draw, prompt):
        answer = asyncio.ensure_future(super().complete(draw, prompt))
        with suppress(asyncio.CancelledError):
            return await asyncio.shield(answer)
        return await answer


@pytest.mark.parametrize(
    ("broken", "test", "said"),
    [
        (Sociable, "a_response_does_not_depend_on_its_company", "the order of draws changes"),
        (Stubborn, "it_continues_after_draws_were_cancelled", "a cancelled draw ended with Resp"),
        (Resentful, "it_continues_after_draws_were_cancelled", "what was cancelled changes"),
    ],
)
def test_a_broken_engine_is_caught(broken, test, said):
    contract = SimulatedContract()
    contract.engine_class = broken
    with pytest.raises(AssertionError, match=said):
        getattr(contract, f"test_{test}")()


def test_an_engine_of_the_former_contract_is_told_what_to_change():
    with pytest.raises(PluginError, match=r"Former: .*`submit`.*async def complete\(self, draw, "):

        class Former(Engine):
            free_slots = None

            def submit(self, draws, prompts): ...
            def wait(self): ...
            def cancel(self, draws): ...
            def load_weights(self, weights): ...

    with pytest.raises(PluginError, match="there is no `Completion`"):
        _ = engines.Completion
