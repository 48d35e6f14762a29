"""Our engines against the contract, and broken ones that it must catch."""

import pytest
from tiny_models import LIMIT, PROMPTS, make_model, make_tokenizer

from rollwise.engines.simulated import Lengths, SimulatedEngine
from rollwise.engines.testing import EngineContract
from rollwise.engines.transformers import TransformersEngine


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


class Forgetful(SimulatedEngine):
    """Goes on with what was cancelled."""

    def cancel(self, draws):
        return 0


class Repetitive(SimulatedEngine):
    """Returns completions twice."""

    def wait(self):
        done = super().wait()
        return [*done, *done]


class Sociable(SimulatedEngine):
    """Adds a token for each response in flight."""

    def _completion(self, response):
        completion = super()._completion(response)
        completion.tokens.extend([0] * len(self._running))
        return completion


class Hoarder(SimulatedEngine):
    """Never reports a slot as taken."""

    free_slots = 5


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Forgetful, "a_cancelled_draw_frees_its_slot_and_never_comes"),
        (Repetitive, "draws_complete_once_and_whole"),
        (Sociable, "a_response_does_not_depend_on_its_company"),
        (Sociable, "draws_complete_once_and_whole"),
        (Hoarder, "a_cancelled_draw_frees_its_slot_and_never_comes"),
    ],
)
def test_a_broken_engine_is_caught(broken, test):
    contract = SimulatedContract()
    contract.engine_class = broken
    with pytest.raises(AssertionError):
        getattr(contract, f"test_{test}")()
