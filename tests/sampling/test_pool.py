"""The pool: counts, order, and when it is uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.sampling import Pool, has_zero_variance

rewards_of_any_kind = st.lists(st.floats(-10, 10), max_size=30)


def test_takes_in_draw_order():
    pool = Pool("x", [1, 0.5], responses=["a", "b"])
    pool.take(0.0, "c")
    pool.take(0.9)
    assert pool.rewards.tolist() == [1, 0.5, 0, 0.9]
    assert pool.correct.tolist() == [True, False, False, True]
    assert pool.responses == ["a", "b", "c", None]
    assert (pool.positives, pool.negatives) == (2, 2)
    assert repr(pool) == "Pool('x': 2 correct of 4 drawn, open)"


@pytest.mark.parametrize("responses", [[], ["a"], ["a", "b", "c"]])
def test_each_reward_needs_its_response(responses):
    with pytest.raises(ValueError, match=f"prompt 'x'.*got 2 rewards and {len(responses)} resp"):
        Pool("x", [1, 0], responses=responses)


def test_correct_is_strictly_above_the_threshold():
    """The reference code asks `reward > 0.7`."""
    pool = Pool("x", [0.7, np.nextafter(0.7, 1), 1.0])
    assert pool.correct.tolist() == [False, True, True]
    assert pool.positives == 2
    assert Pool("x", [0.2, 0.6], positive_threshold=0.5).positives == 1


@given(rewards=rewards_of_any_kind, threshold=st.floats(-10, 10))
def test_the_counts_agree_with_the_rewards(rewards, threshold):
    pool = Pool("x", rewards, positive_threshold=threshold)
    assert pool.rewards.tolist() == rewards
    assert pool.positives == pool.correct.sum() == sum(r > threshold for r in rewards)
    assert pool.positives + pool.negatives == len(pool) == len(rewards)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int64, np.bool_, bool])
def test_numpy_rewards_become_floats(kind):
    """A float32 of 0.1 is above the float 0.1: count and array must judge it alike."""
    pool = Pool("x", positive_threshold=0.1)
    pool.take(kind(0.1))
    assert type(pool.positives) is int
    assert pool.rewards.dtype == np.float64
    assert pool.positives == int(pool.correct.sum())


@pytest.mark.parametrize(
    ("rewards", "uniform"),
    [
        ([], True),
        ([0.3], True),
        ([1.0, 1.0, 1.0], True),
        ([0.1 + 0.2, 0.3], True),
        ([0.0, 0.9e-6], True),
        ([0.0, 1.1e-6], False),
        ([1.0, 0.0], False),
        ([0.5] * 31 + [0.51], False),
        ([-1.0, 1.0], False),
    ],
)
def test_uniform_within_a_millionth(rewards, uniform):
    assert has_zero_variance(rewards) is uniform
    assert Pool("x", rewards).zero_variance is uniform
