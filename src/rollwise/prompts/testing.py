"""What any prompt sampler must do, as tests: subclass, write `make`, and run pytest.

    from rollwise.prompts.testing import PromptSamplerContract

    class TestMySampler(PromptSamplerContract):
        def make(self, keys, batch_size, seed=0):
            return MySampler(keys, batch_size, seed)

Training can use a sampler that passes. What is optional (a state, beliefs) is tested where it is
overridden. The tests import no test framework: any runner of methods named `test_...` will do.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from rollwise.beliefs.testing import check_metrics, check_resuming
from rollwise.prompts.sampler import PromptSampler
from rollwise.sampling.draws import Key

STRINGS = [f"prompt {i * 7 % 40}" for i in range(40)]
KEY_SETS: dict[str, list[Key]] = {
    "strings": [*STRINGS],
    "indices": list(range(40)),
    "integers": [(i * 17 + 5) % 41 - 20 for i in range(40)],
    "mixed": [*STRINGS[:20], *range(20)],
}
"""Kinds of keys that a sampler must take."""


def play(sampler: PromptSampler, steps: int, seed: int = 0, draws: int = 4) -> list[list[Key]]:
    """Ask and tell for some steps, with results by seed, step and keys; returns the batches."""
    batches = []
    for step in range(steps):
        batch = sampler.ask()
        rates = [len(str(key) * 7) % 11 / 10 for key in batch]
        correct = np.random.default_rng((seed, step)).binomial(draws, rates)
        sampler.tell(batch, correct=correct, drawn=[draws] * len(batch))
        batches.append(batch)
    return batches


class PromptSamplerContract:
    """Tests of what training asks of any sampler; a subclass says how one is made."""

    steps = 25
    """Steps to play a sampler for: with batches of 4 of 40 prompts, more than two epochs."""

    def make(self, keys: Sequence[Key], batch_size: int, seed: int = 0) -> PromptSampler:
        """Make a new sampler over `keys`."""
        raise NotImplementedError

    def test_a_batch_has_its_size_and_no_prompt_twice(self) -> None:
        for name, keys in KEY_SETS.items():
            known = {(type(key), key) for key in keys}
            for size in (4, 7):
                for batch in play(self.make(keys, batch_size=size), self.steps):
                    assert len(batch) == len(set(batch)) == size, f"{name}, {size} keys: {batch}"
                    wrong = [key for key in batch if (type(key), key) not in known]
                    assert not wrong, f"{name}: {wrong} are not keys"

    def test_a_batch_may_be_the_whole_set(self) -> None:
        for keys in (STRINGS, ["only"]):
            for batch in play(self.make(keys, batch_size=len(keys)), 5):
                assert sorted(map(str, batch)) == sorted(keys)

    def test_the_seed_decides(self) -> None:
        said = "two samplers of one seed chose different batches: take all randomness from it"
        for seed in (0, 1):
            one, other = (self.make(STRINGS, batch_size=4, seed=seed) for _ in range(2))
            assert play(one, self.steps) == play(other, self.steps), said

    def test_other_counts_can_be_asked_for(self) -> None:
        sampler = self.make(STRINGS, batch_size=4)
        for count in (1, 7, len(STRINGS), len(STRINGS) + 5):
            batch = sampler.ask(count)
            assert len(batch) == len(set(batch)) == min(count, len(STRINGS)), f"{count}: {batch}"

    def test_prompts_can_be_left_out(self) -> None:
        sampler = self.make(STRINGS, batch_size=4)
        for left_out in (STRINGS[:3], STRINGS[:30], STRINGS[2:], STRINGS):
            for exclude in (left_out, dict.fromkeys(left_out), set(left_out)):
                batch = sampler.ask(4, exclude=exclude)
                most, wrong = min(4, len(STRINGS) - len(left_out)), set(batch) & set(left_out)
                assert len(batch) == len(set(batch)) == most, (
                    f"with {len(left_out)} of {len(STRINGS)} prompts left out, ask(4) must give "
                    f"{most} different ones, got {batch}"
                )
                assert not wrong, f"ask(4, exclude=...) gave {sorted(wrong)}, to be left out"
                sampler.tell(batch, correct=[2] * len(batch), drawn=[4] * len(batch))

    def test_tell_takes_what_training_tells(self) -> None:
        sampler = self.make(STRINGS, batch_size=4)
        batch = sampler.ask()
        sampler.tell(batch, correct=[1, 0, 0, 3], drawn=[4, 0, 0, 4])
        sampler.tell(batch, correct=np.zeros(4, int), drawn=np.zeros(4, int))
        sampler.tell(STRINGS[3:6], correct=[0, 1, 4], drawn=[4, 4, 4])
        sampler.tell([], correct=[], drawn=[])
        assert len(sampler.ask()) == 4

    def test_metrics_are_finite_figures(self) -> None:
        sampler = self.make(STRINGS, batch_size=4)
        check_metrics(sampler, lambda: play(sampler, 8))

    def test_a_state_resumes_exactly(self) -> None:
        for keys in KEY_SETS.values():
            check_resuming(partial(self.make, keys, 4), play, (0, 1, 9, 10, 11, 23))

    def test_forecasts_where_there_are_any(self) -> None:
        sampler = self.make(STRINGS, batch_size=4)
        for steps in (0, 5, 20):
            play(sampler, steps)
            rates = sampler.expected_pass_rates(STRINGS[5:25])
            priors = sampler.pass_rate_priors(STRINGS[5:25])
            assert (rates.shape, priors.shape) == ((20,), (20, 2)), f"{rates.shape}, {priors.shape}"
            assert np.all(np.isnan(rates) | ((rates >= 0) & (rates <= 1))), f"{rates}"
            assert np.all((priors > 0) & np.isfinite(priors)), f"{priors}"
            for name, found in (("expected_pass_rates", rates), ("pass_rate_priors", priors)):
                backwards = getattr(sampler, name)(STRINGS[24:4:-1])
                assert np.array_equal(backwards[::-1], found, equal_nan=True), name
