"""What any prompt sampler must do, as tests: subclass, write `make`, and run pytest.

    from rollwise.prompts.testing import PromptSamplerContract

    class TestMySampler(PromptSamplerContract):
        def make(self, keys, batch_size, seed=0):
            return MySampler(keys, batch_size, seed)

`PromptSamplerContract` asks for what training needs: a sampler that passes it can be trained with.
What is optional (a state, beliefs) is tested where it is overridden. `FixedSetContract` adds what
the samplers here promise beyond that, for subclasses of `FixedSetSampler`. The tests import no test
framework: a runner that collects methods named `test_...` is enough.
"""

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollwise.beliefs.testing import (
    assert_same,
    check_metrics,
    keeps_state,
    refused,
    through_files,
)
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.draws import Key

STRINGS = [f"prompt {i * 7 % 40}" for i in range(40)]
KEY_SETS: dict[str, list[Key]] = {
    "strings": [*STRINGS],
    "places": list(range(40)),
    "integers": [(i * 17 + 5) % 41 - 20 for i in range(40)],
    "mixed": [*STRINGS[:20], *range(20)],
}
"""Kinds of keys that a sampler must take."""

STATE_HINT = "does `state_dict` return all that `ask` uses, as copies, and is all of it loaded?"


def play(sampler: PromptSampler, steps: int, seed: int = 0, draws: int = 4) -> list[list[Key]]:
    """Ask and tell for some steps, with pass rates that follow from the keys; returns the batches.

    What comes of a batch depends on `seed`, the step and the batch only.
    """
    batches = []
    for step in range(steps):
        batch = sampler.ask()
        rates = [len(str(key) * 7) % 11 / 10 for key in batch]
        correct = np.random.default_rng((seed, step)).binomial(draws, rates)
        sampler.tell(batch, correct=correct, drawn=[draws] * len(batch))
        lengths = [draws * (len(str(key)) + step % 3) for key in batch]
        sampler.tell_tokens(batch, tokens=lengths, responses=[draws] * len(batch))
        batches.append(batch)
    return batches


class PromptSamplerContract:
    """Tests of what training asks of any sampler; a subclass says how one is made."""

    steps = 25
    """Steps that a sampler is played: with batches of 4 of 40 prompts, two epochs and more."""

    def make(self, keys: Sequence[Key], batch_size: int, seed: int = 0) -> PromptSampler:
        """Make a new sampler over `keys`."""
        raise NotImplementedError

    def test_a_batch_has_its_size_and_no_prompt_twice(self) -> None:
        """Whatever the kind of the keys; they come back as they were given."""
        for name, keys in KEY_SETS.items():
            kinds = {key: type(key) for key in keys}
            for batch in play(self.make(keys, batch_size=4), self.steps):
                assert len(batch) == 4, f"{name}: {batch}"
                assert len(set(batch)) == 4, f"{name}: a prompt twice in {batch}"
                for key in batch:
                    assert type(key) is kinds.get(key), f"{name}: {key!r} is no key"

    def test_a_batch_that_does_not_divide_the_set(self) -> None:
        """Also over the ends of epochs."""
        for batch in play(self.make(STRINGS, batch_size=7), self.steps):
            assert len(batch) == len(set(batch)) == 7

    def test_a_batch_may_be_the_whole_set(self) -> None:
        """Then it is the whole set at every step."""
        for batch in play(self.make(STRINGS, batch_size=len(STRINGS)), 5):
            assert sorted(map(str, batch)) == sorted(STRINGS)

    def test_one_prompt_is_a_set(self) -> None:
        """The smallest."""
        assert play(self.make(["only"], batch_size=1), 5) == [["only"]] * 5

    def test_the_seed_decides(self) -> None:
        """The same seed and the same outcomes give the same batches."""
        for seed in (0, 1):
            first, second = (
                play(self.make(STRINGS, batch_size=4, seed=seed), self.steps) for _ in range(2)
            )
            assert first == second, (
                f"with seed {seed} two samplers chose different batches: take all randomness from "
                "`seed`"
            )

    def test_other_counts_can_be_asked_for(self) -> None:
        """As refilling a batch needs it; at most as many as there are."""
        sampler = self.make(STRINGS, batch_size=4)
        for count in (1, 7, len(STRINGS), len(STRINGS) + 5):
            batch = sampler.ask(count)
            assert len(batch) == len(set(batch)) == min(count, len(STRINGS)), f"{count}: {batch}"

    def test_prompts_can_be_left_out(self) -> None:
        """Any number of them; where too few are left, fewer come, and none where none is left."""
        sampler = self.make(STRINGS, batch_size=4)
        for left_out in (STRINGS[:3], STRINGS[:30], STRINGS[2:], STRINGS):
            for exclude in (left_out, dict.fromkeys(left_out), set(left_out)):
                batch = sampler.ask(4, exclude=exclude)
                most = min(4, len(STRINGS) - len(left_out))
                assert len(batch) == len(set(batch)) == most, (
                    f"with {len(left_out)} of {len(STRINGS)} prompts left out, ask(4) must give "
                    f"{most} different ones, got {batch}"
                )
                wrong = set(batch) & set(left_out)
                assert not wrong, f"ask(4, exclude=...) gave {sorted(wrong)}, to be left out"
                sampler.tell(batch, correct=[2] * len(batch), drawn=[4] * len(batch))

    def test_tell_takes_what_training_tells(self) -> None:
        """Lists or arrays, prompts that were not asked, all of whose responses were lost, none."""
        sampler = self.make(STRINGS, batch_size=4)
        batch = sampler.ask()
        sampler.tell(batch, correct=[1, 0, 0, 3], drawn=[4, 0, 0, 4])
        sampler.tell_tokens(batch, tokens=[50, 0, 0, 90], responses=[4, 0, 0, 4])
        sampler.tell(batch, correct=np.zeros(4, int), drawn=np.zeros(4, int))
        sampler.tell_tokens(batch, tokens=np.zeros(4, int), responses=np.zeros(4, int))
        sampler.tell(STRINGS[3:6], correct=[0, 1, 4], drawn=[4, 4, 4])
        sampler.tell([], correct=[], drawn=[])
        assert len(sampler.ask()) == 4

    def test_metrics_are_finite_figures(self) -> None:
        """At any moment, of the same names."""
        sampler = self.make(STRINGS, batch_size=4)
        names = sampler.metrics().keys()
        for _ in range(3):
            play(sampler, 8)
            check_metrics(sampler.metrics(), names)

    def test_a_state_is_flat_and_of_arrays_and_scalars(self) -> None:
        """So that it can be saved without pickle."""
        if not keeps_state(self.make(STRINGS, 4), PromptSampler):
            return
        sampler = self.make(STRINGS, batch_size=4)
        for _ in range(3):
            for name, value in sampler.state_dict().items():
                assert isinstance(name, str)
                assert isinstance(value, np.ndarray | int | float | str), f"{name} is {value!r}"
                if isinstance(value, np.ndarray):
                    assert value.dtype.kind in "biuf", f"{name} is of {value.dtype}"
            play(sampler, 10)

    def test_a_state_goes_on_exactly(self) -> None:
        """From every step on, through files, in a new sampler."""
        if not keeps_state(self.make(STRINGS, 4), PromptSampler):
            return
        for keys in KEY_SETS.values():
            for steps in (0, 1, 9, 10, 11, 23):
                sampler, other = self.make(keys, batch_size=4), self.make(keys, batch_size=4)
                play(sampler, steps)
                other.load_state_dict(through_files(sampler.state_dict()))
                assert_same(sampler.state_dict(), other.state_dict())
                assert play(sampler, 15, seed=1) == play(other, 15, seed=1), (
                    f"after load_state_dict, with the state of step {steps}, the batches differ: "
                    + STATE_HINT
                )
                assert_same(sampler.state_dict(), other.state_dict())

    def test_a_state_replaces_what_was_learnt_before(self) -> None:
        """A sampler that has gone on can be taken back."""
        if not keeps_state(self.make(STRINGS, 4), PromptSampler):
            return
        sampler = self.make(STRINGS, batch_size=4)
        play(sampler, 12)
        state = sampler.state_dict()
        first = play(sampler, 15, seed=1)
        sampler.load_state_dict(state)
        assert play(sampler, 15, seed=1) == first, (
            "taken back by load_state_dict, the sampler chose other batches: " + STATE_HINT
        )

    def test_a_state_is_a_copy(self) -> None:
        """What happens later changes no state that was taken or loaded before."""
        if not keeps_state(self.make(STRINGS, 4), PromptSampler):
            return
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        play(sampler, 11)
        state = sampler.state_dict()
        kept = pickle.loads(pickle.dumps(state))
        other.load_state_dict(state)
        play(sampler, 12)
        play(other, 12, seed=1)
        assert_same(state, kept)

    def test_a_state_does_not_grow(self) -> None:
        """Its size is that of the set, however long the run."""
        if not keeps_state(self.make(STRINGS, 4), PromptSampler):
            return
        sampler = self.make(STRINGS, batch_size=4)
        arrays, texts = [], []
        for _ in range(4):
            play(sampler, 25)
            values = sampler.state_dict().values()
            arrays.append(sum(v.nbytes for v in values if isinstance(v, np.ndarray)))
            texts.append(sum(len(v) for v in values if isinstance(v, str)))
        assert len(set(arrays[1:])) == 1, f"bytes after 25, 50, 75 and 100 steps: {arrays}"
        spread = max(texts[1:]) - min(texts[1:])  # numbers in it may have some digits more or less
        assert spread <= 20, f"characters after 25, 50, 75 and 100 steps: {texts}"

    def test_expected_pass_rates_where_there_are_any(self) -> None:
        """Within [0, 1], or NaN; one for each key asked of."""
        self._check_forecasts("expected_pass_rates", (20,), _within_0_and_1)

    def test_pass_rate_priors_where_there_are_any(self) -> None:
        """α and β of each key asked of, above 0 and finite."""
        self._check_forecasts("pass_rate_priors", (20, 2), _above_0_and_finite)

    def _check_forecasts(
        self, verb: str, shape: tuple[int, ...], fits: Callable[[Any], bool]
    ) -> None:
        """In the order of the keys, the same each time: asking changes nothing."""
        sampler = self.make(STRINGS, batch_size=4)
        forecast = getattr(sampler, verb)
        for steps in (0, 5, 20):
            play(sampler, steps)
            forecasts = forecast(STRINGS[5:25])
            assert forecasts.shape == shape, f"{verb}: {forecasts.shape}"
            assert fits(forecasts), f"{verb}: {forecasts}"
            backwards = forecast(STRINGS[24:4:-1])
            assert np.array_equal(backwards[::-1], forecasts, equal_nan=True), verb


class FixedSetContract(PromptSamplerContract):
    """Further tests, of subclasses of `FixedSetSampler` and of what wraps them."""

    def test_keys_may_come_in_any_form(self) -> None:
        """A tuple, an iterator or an array of the same keys is the same set."""
        expected = play(self.make(STRINGS, batch_size=4), self.steps)
        for keys in (tuple(STRINGS), np.array(STRINGS)):
            assert play(self.make(keys, batch_size=4), self.steps) == expected  # type: ignore[arg-type]
        expected = play(self.make(list(range(40)), batch_size=4), self.steps)
        for numbers in (range(40), np.arange(40)):
            assert play(self.make(numbers, batch_size=4), self.steps) == expected  # type: ignore[arg-type]

    def test_a_state_of_other_prompts_is_refused(self) -> None:
        """With what differs, and without having changed anything."""
        state = self.make(STRINGS, batch_size=4).state_dict()
        fewer = self.make(STRINGS[:-1], batch_size=4)
        refused(lambda: fewer.load_state_dict(state), "40", "39")
        other = self.make([*STRINGS[:-1], "another"], batch_size=4)
        before = other.state_dict()
        refused(lambda: other.load_state_dict(state), "fingerprint")
        assert_same(other.state_dict(), before)

    def test_an_incomplete_state_is_refused(self) -> None:
        """Where it lacks an array; without having changed anything."""
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        play(sampler, 3)
        state, before = sampler.state_dict(), other.state_dict()
        for name in [name for name, value in state.items() if isinstance(value, np.ndarray)]:
            rest = {key: value for key, value in state.items() if key != name}
            refused(lambda rest=rest: other.load_state_dict(rest), name.rpartition(".")[2])  # type: ignore[misc]
            assert_same(other.state_dict(), before)

    def test_it_can_be_pickled(self) -> None:
        """At any moment, and continues exactly."""
        for keys in KEY_SETS.values():
            for steps in (0, 3, 12):
                sampler = self.make(keys, batch_size=4)
                play(sampler, steps)
                other = pickle.loads(pickle.dumps(sampler))
                assert play(sampler, 15) == play(other, 15)

    def test_tell_takes_prompts_that_were_not_asked(self) -> None:
        """And lists, arrays and NumPy's own strings and integers."""
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        sampler.tell(STRINGS[3:6], correct=[0, 1, 4], drawn=[4, 4, 4])
        other.tell(np.array(STRINGS[3:6]), np.array([0, 1, 4]), np.array([4, 4, 4]))  # type: ignore[arg-type]
        assert_same(sampler.state_dict(), other.state_dict())
        assert len(sampler.ask()) == 4
        numbers = self.make(range(40), batch_size=4)
        numbers.tell(np.array([3, 4]), correct=[1, 1], drawn=[4, 4])  # type: ignore[arg-type]

    def test_prompts_without_draws_teach_nothing(self) -> None:
        """All of whose responses were lost, or no prompts at all."""
        sampler, other = self.make(STRINGS, batch_size=4), self.make(STRINGS, batch_size=4)
        batch = sampler.ask()
        assert other.ask() == batch
        sampler.tell(batch, correct=[1, 0, 0, 3], drawn=[4, 0, 0, 4])
        other.tell([batch[0], batch[3]], correct=[1, 3], drawn=[4, 4])
        assert_same(sampler.state_dict(), other.state_dict())
        sampler.tell(batch, correct=[0] * 4, drawn=[0] * 4)
        sampler.tell([], correct=[], drawn=[])
        assert_same(sampler.state_dict(), other.state_dict())

    def test_tell_refuses_what_cannot_be(self) -> None:
        """Names it, and learns nothing."""
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

    def test_sets_that_cannot_be_are_refused(self) -> None:
        """A key twice, a key that is none, a batch that is too large or too small."""
        refused(lambda: self.make(["a", "b", "a", "c"], batch_size=1), "'a'", "twice")
        refused(lambda: self.make([5, 6, 5], batch_size=1), "5", "twice")
        refused(lambda: self.make(["a", 1.5], batch_size=1), "1.5")  # type: ignore[list-item]
        refused(lambda: self.make(["a", True], batch_size=1), "True")
        refused(lambda: self.make(["a", "b"], batch_size=3), "batch_size", "2", "3")
        refused(lambda: self.make([], batch_size=1), "batch_size", "0", "1")
        refused(lambda: self.make(["a", "b"], batch_size=0), "batch_size", "0")

    def test_unknown_keys_are_refused(self) -> None:
        """Where something is asked about them."""
        sampler = self.make(STRINGS, batch_size=4)
        for verb in (sampler.expected_pass_rates, sampler.pass_rate_priors):
            refused(lambda verb=verb: verb(["nobody"]), "'nobody'")  # type: ignore[misc]
        refused(lambda: sampler.ask(1, exclude=["nobody"]), "'nobody'")


def _within_0_and_1(rates: Any) -> bool:
    return bool(np.all(np.isnan(rates) | ((rates >= 0) & (rates <= 1))))


def _above_0_and_finite(priors: Any) -> bool:
    return bool(np.all((priors > 0) & np.isfinite(priors)))
