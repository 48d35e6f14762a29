"""Pools: counts, order, and when they are uniform; the seeds of draws."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollwise.sampling import FixedCount, Pool, RolloutSession, Rounds, draw_seed, has_zero_variance
from rollwise.sampling.pool import POSITIVE_THRESHOLD

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
    with pytest.raises(ValueError, match=r"prompt 'x'.*got 2 rewards and 1 resp"):
        Pool("x", [1, 0], responses=["a"])


@example(rewards=[0.7, float(np.nextafter(0.7, 1)), 1.0], threshold=POSITIVE_THRESHOLD)
@given(rewards=rewards_of_any_kind, threshold=st.floats(-10, 10))
def test_the_counts_agree_with_the_rewards(rewards, threshold):
    """Correct is strictly above: the reference code asks `reward > 0.7`."""
    pool = Pool("x", rewards, positive_threshold=threshold)
    assert pool.rewards.tolist() == rewards
    assert pool.positives == pool.correct.sum() == sum(r > threshold for r in rewards)
    assert POSITIVE_THRESHOLD == 0.7
    assert pool.positives + pool.negatives == len(pool) == len(rewards)


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


@pytest.mark.parametrize(
    "named",
    [
        [(1, 2, "x", 3), (2, 2, "x", 3), (1, 1, "x", 3), (1, 2, "y", 3), (1, 2, "x", 4)],
        # A hash of "1" + "11" must not be that of "11" + "1", nor that of 1 that of "1".
        [(1, 11, "1", 1), (11, 1, "1", 1), (1, 1, "11", 1), (1, 1, "1", 11), (1, 1, 11, 1)],
    ],
)
def test_a_seed_hangs_on_run_step_key_and_index(named):
    assert len({draw_seed(*one) for one in named}) == len(named)


def test_seeds_are_the_same_in_every_process_and_release():
    r"""The 64-bit BLAKE2b without its lowest bit; a change would break runs that are resumed.

    From coreutils: `printf '0\x1f0\x1fstr\x1fx\x1f0' | b2sum -l 64`, and `3 5 int -7 31` likewise.
    """
    assert draw_seed(0, 0, "x", 0) == 0x3D46990C4DC5D2D5 >> 1
    assert draw_seed(3, 5, -7, 31) == 0x6904F8ABF0720FD3 >> 1


@pytest.mark.parametrize("key", ["", "é", "a\x1fb", "\ud800", "𝒳"])
def test_a_seed_hangs_on_no_other_prompt_nor_on_the_schedule_whatever_the_key(key):
    alone = RolloutSession([key], FixedCount(4), Rounds(4, 1), seed=1).next_draws()
    among = RolloutSession(["w", key, "y"], FixedCount(2), Rounds(8, 2), seed=1).next_draws()
    assert [draw for draw in among if draw.key == key][:4] == alone
