"""What samplers over a fixed set promise beyond `PromptSamplerContract`."""

import math

import numpy as np

from rollwise.beliefs.testing import assert_same, refused
from rollwise.prompts.testing import STRINGS, PromptSamplerContract, play


class FixedSetContract(PromptSamplerContract):
    """Further tests, of subclasses of `FixedSetSampler` and of what wraps them."""

    def test_keys_may_come_in_any_form(self):
        expected = play(self.make(STRINGS, batch_size=4), self.steps)
        for keys in (tuple(STRINGS), np.array(STRINGS)):
            assert play(self.make(keys, batch_size=4), self.steps) == expected
        expected = play(self.make(list(range(40)), batch_size=4), self.steps)
        for numbers in (range(40), np.arange(40)):
            assert play(self.make(numbers, batch_size=4), self.steps) == expected

    def test_a_state_of_other_prompts_is_refused(self):
        state = self.make(STRINGS, batch_size=4).state_dict()
        fewer = self.make(STRINGS[:-1], batch_size=4)
        refused(lambda: fewer.load_state_dict(state), "40", "39")
        other = self.make([*STRINGS[:-1], "another"], batch_size=4)
        before = other.state_dict()
        refused(lambda: other.load_state_dict(state), "fingerprint")
        assert_same(other.state_dict(), before)

    def test_an_incomplete_state_is_refused(self):
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        play(sampler, 3)
        state, before = sampler.state_dict(), other.state_dict()
        for name in [name for name, value in state.items() if isinstance(value, np.ndarray)]:
            rest = {key: value for key, value in state.items() if key != name}
            refused(lambda rest=rest: other.load_state_dict(rest), name.rpartition(".")[2])
            assert_same(other.state_dict(), before)

    def test_tell_takes_arrays(self):
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        sampler.tell(STRINGS[3:6], correct=[0, 1, 4], drawn=[4, 4, 4])
        other.tell(np.array(STRINGS[3:6]), np.array([0.0, 1.0, 4.0]), np.array([4, 4, 4]))
        assert_same(sampler.state_dict(), other.state_dict())
        numbers = self.make(range(40), batch_size=4)
        numbers.tell(np.array([3, 4]), correct=[1, 1], drawn=[4, 4])

    def test_prompts_without_draws_teach_nothing(self):
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        batch = sampler.ask()
        assert other.ask() == batch
        sampler.tell(batch, correct=[1, 0, 0, 3], drawn=[4, 0, 0, 4])
        other.tell([batch[0], batch[3]], correct=[1, 3], drawn=[4, 4])
        assert_same(sampler.state_dict(), other.state_dict())
        sampler.tell(batch, correct=[0] * 4, drawn=[0] * 4)
        sampler.tell([], correct=[], drawn=[])
        assert_same(sampler.state_dict(), other.state_dict())

    def test_tell_refuses_what_cannot_be(self):
        sampler = self.make(STRINGS, batch_size=4)
        play(sampler, 3)
        before = sampler.state_dict()
        one, two = STRINGS[:2]
        refused(lambda: sampler.tell([one, "nobody"], [1, 1], [4, 4]), "'nobody'")
        refused(lambda: sampler.tell([one, 7], [1, 1], [4, 4]), "7")
        refused(lambda: sampler.tell([one, two, one], [1, 1, 1], [4, 4, 4]), repr(one), "twice")
        refused(lambda: sampler.tell([one, two], [1, 5], [4, 4]), repr(two), "4", "5")
        refused(lambda: sampler.tell([one, two], [1, -1], [4, 4]), repr(two), "-1")
        refused(lambda: sampler.tell([one, two], [0, 0], [4, -4]), repr(two), "-4")
        refused(lambda: sampler.tell([one, two], [1], [4, 4]), "correct", "drawn")
        refused(lambda: sampler.tell([one, two], [1, 1], [4]), "correct", "drawn")
        refused(lambda: sampler.tell([one], [0.5], [4]), "correct", "0.5")
        refused(lambda: sampler.tell([one], [1], [math.nan]), "drawn", "nan")
        assert_same(sampler.state_dict(), before)

    def test_sets_that_cannot_be_are_refused(self):
        refused(lambda: self.make(["a", "b", "a", "c"], batch_size=1), "'a'", "twice")
        refused(lambda: self.make([5, 6, 5], batch_size=1), "5", "twice")
        refused(lambda: self.make(["a", 1.5], batch_size=1), "1.5")
        refused(lambda: self.make(["a", True], batch_size=1), "True")
        refused(lambda: self.make(["a", "b"], batch_size=3), "batch_size", "2", "3")
        refused(lambda: self.make([], batch_size=1), "batch_size", "0", "1")
        refused(lambda: self.make(["a", "b"], batch_size=0), "batch_size", "0")

    def test_unknown_keys_are_refused(self):
        sampler = self.make(STRINGS, batch_size=4)
        for verb in (sampler.expected_pass_rates, sampler.pass_rate_priors):
            refused(lambda verb=verb: verb(["nobody"]), "'nobody'")
        refused(lambda: sampler.ask(1, exclude=["nobody"]), "'nobody'")
