"""What any belief must do, as tests: subclass, write `make`, and run pytest.

    from rollwise.beliefs.testing import BeliefContract

    class TestMyBelief(BeliefContract):
        def make(self, total):
            return MyBelief(total)

The tests import no test framework: a runner that collects methods named `test_...` is enough.
"""

import io
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from rollwise.beliefs.belief import Belief
from rollwise.beliefs.state import State

TOTAL = 20


def through_files(state: State) -> State:
    """Write a state as checkpoints do and read it back: arrays without pickle, scalars as JSON."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    scalars = {name: value for name, value in state.items() if name not in arrays}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        return {**{name: read[name] for name in read.files}, **json.loads(json.dumps(scalars))}


def refused(call: Callable[[], Any], *named: str) -> None:
    """Demand a ValueError or TypeError whose text has every one of `named`."""
    try:
        call()
    except (ValueError, TypeError) as error:
        missing = [text for text in named if text not in str(error)]
        if missing:
            raise AssertionError(f"the error should name {missing}, it is: {error}") from error
    else:
        raise AssertionError(f"nothing was refused; an error should name {list(named)}")


def assert_same(one: State, other: State) -> None:
    """Demand two states that are equal to the bit (so that NaN equals NaN)."""
    assert one.keys() == other.keys(), f"{sorted(one)} and {sorted(other)}"
    for name, value in one.items():
        first, second = np.asarray(value), np.asarray(other[name])
        for held, array in ((value, first), (other[name], second)):
            assert array.dtype != object, (
                f"{name} is a {type(held).__name__}; a state holds arrays and scalars only"
            )
        same = first.dtype == second.dtype and first.shape == second.shape
        assert same and first.tobytes() == second.tobytes(), f"{name} differs: {first}, {second}"


def teach(belief: Belief, steps: int, seed: int = 0) -> None:
    """Let a belief learn of 5 random prompts a step, with 4 responses each."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        places = rng.choice(TOTAL, 5, replace=False)
        drawn = np.full(5, 4)
        belief.learn(places, rng.binomial(drawn, places / TOTAL), drawn)


def believed(belief: Belief, places: Any) -> list[Any]:
    """Ask for all that a belief says of some prompts."""
    return [*belief.believe(places), belief.mean(places), belief.priors(places)]


def same(one: list[Any], other: list[Any]) -> bool:
    """Say whether two answers of `believed` are equal, NaN and NaN too."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


class BeliefContract:
    """Tests of a belief; a subclass says how it is made. States are tested where they are kept."""

    def make(self, total: int) -> Belief:
        """Make a new belief of `total` prompts."""
        raise NotImplementedError

    def test_it_says_how_many_prompts_it_is_of(self) -> None:
        """A sampler refuses a belief of another number."""
        assert self.make(TOTAL).total == TOTAL

    def test_means_strengths_and_priors_are_possible(self) -> None:
        """Means within [0, 1] or NaN; strengths finite, at least 0; α and β finite, above 0."""
        belief = self.make(TOTAL)
        for steps in (0, 3, 30):
            teach(belief, steps)
            mean, strength = belief.believe(np.arange(3, 9))
            priors = belief.priors(np.arange(3, 9))
            assert mean.shape == strength.shape == (6,), f"{mean.shape}, {strength.shape}"
            assert priors.shape == (6, 2), f"{priors.shape}"
            assert np.all(np.isnan(mean) | ((mean >= 0) & (mean <= 1))), f"{mean}"
            assert np.all(np.isfinite(strength) & (strength >= 0)), f"{strength}"
            assert np.all(np.isfinite(priors) & (priors > 0)), f"{priors}"

    def test_places_come_in_any_order_and_as_a_slice(self) -> None:
        """With the same answers, and without having changed anything."""
        belief = self.make(TOTAL)
        teach(belief, 10)
        expected = believed(belief, np.arange(4, 12))
        assert same(believed(belief, slice(4, 12)), expected)
        backwards = believed(belief, np.arange(11, 3, -1))
        assert same([each[::-1] for each in backwards], expected)
        assert same(believed(belief, np.arange(4, 12)), expected)
        assert all(len(each) == 0 for each in believed(belief, np.arange(0)))

    def test_it_learns(self) -> None:
        """Of a prompt that is always solved it expects more than of one that never is."""
        belief = self.make(TOTAL)
        for _ in range(8):
            belief.learn(np.array([2, 5]), np.array([4, 0]), np.array([4, 4]))
        solved, failed = belief.mean(np.array([2, 5]))
        assert solved > failed, f"{solved} of a solved prompt, {failed} of a failed one"

    def test_hardness_falls_with_the_pass_rate(self) -> None:
        """One finite value for each prompt, and one for the target."""
        belief = self.make(TOTAL)
        for _ in range(8):
            belief.learn(np.array([2, 5]), np.array([4, 0]), np.array([4, 4]))
        hardness, aim = belief.hardness(0.5)
        assert hardness.shape == (TOTAL,)
        assert np.all(np.isfinite(hardness))
        assert math.isfinite(aim)
        assert hardness[2] < hardness[5]

    def test_metrics_are_finite_figures(self) -> None:
        """At any moment, of the same names."""
        belief = self.make(TOTAL)
        names = belief.metrics().keys()
        for _ in range(3):
            teach(belief, 5)
            check_metrics(belief.metrics(), names)

    def test_a_state_resumes_exactly(self) -> None:
        """Through files, into a new belief and into one that had moved on."""
        if not keeps_state(self.make(TOTAL), Belief):
            return
        for steps in (0, 1, 12):
            belief, other = self.make(TOTAL), self.make(TOTAL)
            teach(belief, steps)
            state = belief.state_dict()
            kept = pickle.loads(pickle.dumps(state))
            other.load_state_dict(through_files(state))
            for each in (belief, other):
                teach(each, 6, seed=1)
            assert_same(state, kept)
            assert_same(belief.state_dict(), other.state_dict())
            assert same(believed(belief, slice(None)), believed(other, slice(None)))
            belief.load_state_dict(state)
            assert_same(belief.state_dict(), kept)

    def test_a_state_that_does_not_fit_is_refused(self) -> None:
        """Of fewer prompts, or incomplete; without having changed anything."""
        if not keeps_state(self.make(TOTAL), Belief):
            return
        belief = self.make(TOTAL)
        teach(belief, 5)
        before, other = belief.state_dict(), self.make(TOTAL - 1).state_dict()
        refused(lambda: belief.load_state_dict(other), str(TOTAL), str(TOTAL - 1))
        for name in [name for name, value in before.items() if isinstance(value, np.ndarray)]:
            rest = {key: value for key, value in before.items() if key != name}
            refused(lambda rest=rest: belief.load_state_dict(rest), name)  # type: ignore[misc]
        assert_same(belief.state_dict(), before)


def keeps_state(plugin: Any, base: type) -> bool:
    """Say whether a plug-in has a state of its own, in place of its base's empty one."""
    return type(plugin).state_dict is not base.state_dict  # type: ignore[attr-defined]


def check_metrics(metrics: dict[str, float], names: Any) -> None:
    """Demand finite numbers of the names given."""
    assert metrics.keys() == names, f"{sorted(metrics)}, before {sorted(names)}"
    for name, value in metrics.items():
        assert isinstance(value, int | float), f"{name} is {value!r}"
        assert math.isfinite(value), f"{name} is {value!r}"
