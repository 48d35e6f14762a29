"""Every sampler here keeps the contract; and the contract notices who does not."""

import numpy as np
import pytest
from fixed_set_contract import FixedSetContract

from rollwise.beliefs import LatestPassRate
from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Retiring, Uniform
from rollwise.prompts.testing import play


class TestUniform(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Uniform(keys, batch_size, seed)


class TestCurriculum(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Curriculum(keys, batch_size, seed, levels=[5] * len(keys))


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


class TestPrioritized(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Prioritized(keys, batch_size, seed)


class TestCDAS(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return CDAS(keys, batch_size, seed)


class TestCDASOfTheReleasedCode(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return CDAS(keys, batch_size, seed, form="released_code", warmup_epochs=0)


class TestCalibratedCDAS(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return CDAS(keys, batch_size, seed, form="calibrated", target=0.4, revisit_share=0.25)


class TestCDASWithTwoEpochsOfWarmUp(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return CDAS(keys, batch_size, seed, warmup_epochs=2, step_floor=0.2, revisit_share=0.5)


class TestPosterior(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Posterior(keys, batch_size, seed)


class TestPosteriorWithFewCandidates(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Posterior(keys, batch_size, seed, candidates=max(batch_size, 8))


class TestRetiring(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Retiring(CDAS(keys, batch_size, seed), visits=1, pass_rate=0.5)


class TestRetiringAroundUniform(FixedSetContract):
    def make(self, keys, batch_size, seed=0):
        return Retiring(Uniform(keys, batch_size, seed), visits=1)


class TwicePerBatch(Uniform):
    def ask(self, count=None, exclude=()):
        batch = super().ask(count, exclude)
        return [*batch[:-1], batch[0]]


class ForgetsItsPosition(Uniform):
    def load_own_state(self, state):
        super().load_own_state({**state, "position": 0})


class Credulous(Prioritized):
    def tell(self, keys, correct, drawn):
        known = [key in self.keys for key in keys]
        super().tell(
            *([x for x, k in zip(list(v), known, strict=True) if k] for v in (keys, correct, drawn))
        )


class SharedRates(LatestPassRate):
    def state_dict(self):
        return {"pass_rates": self._pass_rates}


class SharesItsArrays(Uniform):
    def make_belief(self):
        return SharedRates(len(self.keys))


class IgnoresWhatToLeaveOut(Uniform):
    def ask(self, count=None, exclude=()):
        return super().ask(count)


class DividesByNoDraws(Uniform):
    def tell(self, keys, correct, drawn):
        self.latest = [int(c) / int(n) for c, n in zip(correct, drawn, strict=True)]


class Keeps(Uniform):
    def own_state(self):
        return {**super().own_state(), "history": np.zeros(self.asks)}


class Restless(Prioritized):
    def rng(self):
        return np.random.default_rng()


class HalfLoads(Uniform):
    def load_state_dict(self, state):
        self.asks = 99
        super().load_state_dict(state)


class Certain(Prioritized):
    def pass_rate_priors(self, keys):
        return super().pass_rate_priors(keys) - 1


class AnswersInItsOwnOrder(Posterior):
    def pass_rate_priors(self, keys):
        return super().pass_rate_priors(sorted(keys))


@pytest.mark.parametrize(
    ("sampler", "test"),
    [
        (TwicePerBatch, "test_a_batch_has_its_size_and_no_prompt_twice"),
        (ForgetsItsPosition, "test_a_state_resumes_exactly"),
        (Credulous, "test_tell_refuses_what_cannot_be"),
        (SharesItsArrays, "test_a_state_resumes_exactly"),
        (IgnoresWhatToLeaveOut, "test_prompts_can_be_left_out"),
        (DividesByNoDraws, "test_tell_takes_what_training_tells"),
        (Keeps, "test_a_state_does_not_grow"),
        (Restless, "test_the_seed_decides"),
        (HalfLoads, "test_an_incomplete_state_is_refused"),
        (Certain, "test_forecasts_where_there_are_any"),
        (AnswersInItsOwnOrder, "test_forecasts_where_there_are_any"),
    ],
)
def test_the_contract_notices(sampler, test):
    class Suite(FixedSetContract):
        def make(self, keys, batch_size, seed=0):
            return sampler(keys, batch_size, seed)

    with pytest.raises((AssertionError, ValueError, ZeroDivisionError)) as caught:
        getattr(Suite(), test)()
    assert str(caught.value), "it must say what is wrong"


def test_samplers_learn_from_what_they_are_told():
    """Other outcomes, other batches: the suite would pass a sampler that learns nothing."""
    for sampler in (Prioritized, CDAS, Posterior):
        first, second = sampler(range(40), 4), sampler(range(40), 4)
        assert play(first, 10) == play(second, 10) or sampler is not CDAS
        assert play(first, 20, seed=1) != play(second, 20, seed=2)
