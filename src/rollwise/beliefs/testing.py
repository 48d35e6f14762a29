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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.beliefs.belief import Belief
from rollwise.beliefs.state import State, can_be_saved

TOTAL = 20


class BeliefContract:
    """Tests of a belief; a subclass says how it is made. States are tested where they are kept."""

    def make(self, total: int) -> Belief:
        """Make a new belief of `total` prompts."""
        raise NotImplementedError

    def test_means_strengths_and_priors_are_possible(self) -> None:
        belief = self.make(TOTAL)
        assert belief.total == TOTAL, "a sampler refuses a belief of another number of prompts"
        for steps in (0, 3, 30):
            _teach(belief, steps)
            mean, strength = belief.believe(np.arange(3, 9))
            priors = belief.priors(np.arange(3, 9))
            assert mean.shape == strength.shape == (6,), f"{mean.shape}, {strength.shape}"
            assert priors.shape == (6, 2), f"{priors.shape}"
            assert np.all(np.isnan(mean) | ((mean >= 0) & (mean <= 1))), f"{mean}"
            assert np.all(np.isfinite(strength) & (strength >= 0)), f"{strength}"
            assert np.all(np.isfinite(priors) & (priors > 0)), f"{priors}"

    def test_indices_come_in_any_order_and_as_a_slice(self) -> None:
        belief = self.make(TOTAL)
        _teach(belief, 10)
        expected = _believed(belief, np.arange(4, 12))
        np.testing.assert_array_equal(_believed(belief, slice(4, 12)), expected)
        np.testing.assert_array_equal(_believed(belief, np.arange(11, 3, -1))[::-1], expected)
        assert len(_believed(belief, np.arange(0))) == 0

    def test_it_learns(self) -> None:
        belief = self.make(TOTAL)
        for _ in range(8):
            belief.learn(np.array([2, 5]), np.array([4, 0]), np.array([4, 4]))
        solved, failed = belief.mean(np.array([2, 5]))
        assert solved > failed, f"{solved} of a solved prompt, {failed} of a failed one"

    def test_metrics_are_finite_figures(self) -> None:
        belief = self.make(TOTAL)
        check_metrics(belief, lambda: _teach(belief, 5))

    def test_a_state_resumes_exactly(self) -> None:
        check_resuming(lambda: self.make(TOTAL), _teach, (0, 1, 12))

    def test_a_state_that_does_not_fit_is_refused(self) -> None:
        belief = self.make(TOTAL)
        _teach(belief, 5)
        if state := belief.state_dict():
            other = self.make(TOTAL - 1).state_dict()
            refused(lambda: belief.load_state_dict(other), str(TOTAL), str(TOTAL - 1))
            check_incomplete_states(belief, state)


def _teach(belief: Belief, steps: int, seed: int = 0) -> bytes:
    """Let a belief learn of 5 random prompts a step; return all that it says then."""
    rng, drawn = np.random.default_rng(seed), np.full(5, 4)
    for _ in range(steps):
        indices = rng.choice(TOTAL, 5, replace=False)
        belief.learn(indices, rng.binomial(drawn, indices / TOTAL), drawn)
    return _believed(belief, slice(None)).tobytes()


def _believed(belief: Belief, indices: Any) -> NDArray[np.float64]:
    """Return all that a belief says of some prompts, shape (P, 5)."""
    return np.column_stack([*belief.believe(indices), belief.mean(indices), belief.priors(indices)])


def through_files(state: State) -> State:
    """Write a state as checkpoints do and read it back: arrays without pickle, scalars as JSON."""
    for name, value in state.items():
        kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        said = f"{name} is a {kind}; a state holds arrays and scalars"
        assert can_be_saved(value), f"{said} only, and the arrays hold numbers"
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    scalars = {name: value for name, value in state.items() if name not in arrays}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        return {**read, **json.loads(json.dumps(scalars))}


def refused(call: Callable[[], Any], *named: str) -> None:
    """Demand a ValueError or TypeError whose text has every one of `named`."""
    try:
        call()
    except (ValueError, TypeError) as error:
        missing = [text for text in named if text not in str(error)]
        assert not missing, f"the error should name {missing}, it is: {error}"
    else:
        raise AssertionError(f"nothing was refused; an error should name {list(named)}")


def assert_same(one: State, other: State) -> None:
    """Demand that two states are equal bit for bit (so that NaN equals NaN)."""
    assert one.keys() == other.keys(), f"{sorted(one)} and {sorted(other)}"
    for name in one:
        first, second = np.asarray(one[name]), np.asarray(other[name])
        same = first.dtype == second.dtype and first.shape == second.shape
        assert same and first.tobytes() == second.tobytes(), f"{name} differs: {first}, {second}"


def check_incomplete_states(plugin: Any, state: State) -> None:
    """Demand that a state without one of its arrays is refused by name, and changes nothing."""
    before = plugin.state_dict()
    for name in [name for name, value in state.items() if isinstance(value, np.ndarray)]:
        rest = {key: value for key, value in state.items() if key != name}
        refused(lambda rest=rest: plugin.load_state_dict(rest), name.rpartition(".")[2])  # type: ignore[misc]
        assert_same(plugin.state_dict(), before)


def check_resuming(
    make: Callable[[], Any], play: Callable[[Any, int, int], Any], steps: Sequence[int]
) -> None:
    """Demand that a plug-in that keeps a state goes on from it as if it had never stopped.

    `play(plugin, steps, seed)` uses it for some steps, and returns its answers.
    """
    hint = "does `state_dict` return all that is used, as copies, and is all of it loaded?"
    for played in steps:
        plugin, other = make(), make()
        play(plugin, played, 0)
        state = plugin.state_dict()
        if not state:
            continue
        kept = pickle.loads(pickle.dumps(state))
        other.load_state_dict(through_files(state))
        assert_same(state, other.state_dict())
        answers = play(plugin, 15, 1)
        assert play(other, 15, 1) == answers, f"loaded into another, it diverges: {hint}"
        assert_same(plugin.state_dict(), other.state_dict())
        plugin.load_state_dict(state)
        assert play(plugin, 15, 1) == answers, f"taken back, it diverges: {hint}"
        assert_same(state, kept)


def check_metrics(plugin: Any, go_on: Callable[[], Any]) -> None:
    """Demand finite numbers under the same names at any time."""
    names = plugin.metrics().keys()
    for _ in range(3):
        go_on()
        metrics = plugin.metrics()
        assert metrics.keys() == names, f"{sorted(metrics)}, before {sorted(names)}"
        for name, value in metrics.items():
            assert isinstance(value, int | float) and math.isfinite(value), f"{name} is {value!r}"
