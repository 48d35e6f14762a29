"""Advantages against hand computations and against TRL's formula."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollwise.sampling import Pool, advantages, is_uniform, select_group

OBJECTIVES = ("reference", "grpo")


def grouped(rewards, size: int = 4):
    pool = Pool("x", rewards)
    return pool, select_group(pool, size)


def trl(rewards) -> np.ndarray:
    """TRL's GRPOTrainer: rewards − mean, over torch's std (n − 1 below) + 1e-4."""
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
    return (np.array(rewards) - mean) / (variance**0.5 + 1e-4)


def test_reference_subtracts_the_mean_of_the_whole_pool():
    """2 correct of 8: mean ¼, so ¾ and −¼, though the group is half correct."""
    pool, group = grouped([0, 0, 1, 0, 0, 0, 1, 0])
    assert group.indices.tolist() == [0, 1, 2, 6]
    assert advantages(pool, group).tolist() == [-0.25, -0.25, 0.75, 0.75]
    assert advantages(pool, group, objective="reference").tolist() == [-0.25, -0.25, 0.75, 0.75]


def test_reference_takes_the_mean_of_shaped_rewards_themselves():
    """(.9 + .1 + .8 + .2 + .1 + .3)/6 = .4, where counts above the threshold would say 2/6."""
    pool, group = grouped([0.9, 0.1, 0.8, 0.2, 0.1, 0.3])
    assert group.indices.tolist() == [0, 1, 2, 3]
    assert advantages(pool, group) == pytest.approx([0.5, -0.3, 0.4, -0.2], abs=1e-15)


def test_reference_scales_by_the_pools_standard_deviation():
    """2 correct of 8: squares 2·(3/4)² + 6·(1/4)² = 3/2, over 7."""
    pool, group = grouped([0, 0, 1, 0, 0, 0, 1, 0])
    scale = (1.5 / 7) ** 0.5 + 1e-4
    assert advantages(pool, group, scale_by_std=True) == pytest.approx(
        [-0.25 / scale, -0.25 / scale, 0.75 / scale, 0.75 / scale], rel=1e-14
    )


def test_grpo_subtracts_the_mean_of_the_group():
    pool, group = grouped([0, 0, 1, 0, 0, 0, 1, 0])
    assert advantages(pool, group, objective="grpo").tolist() == [-0.5, -0.5, 0.5, 0.5]


@given(
    rewards=st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=24), half=st.integers(1, 6)
)
def test_scaled_grpo_is_trls_formula(rewards, half):
    pool, group = grouped(rewards, 2 * half)
    assume(not group.uniform)
    found = advantages(pool, group, objective="grpo", scale_by_std=True)
    assert found == pytest.approx(trl(group.rewards.tolist()), rel=1e-9, abs=1e-12)


def test_a_group_that_is_the_pool_has_the_same_advantages_under_both():
    pool = Pool("x", [1, 0, 0.5, 0, 1])
    group = select_group(pool, 4, strategy="all")
    for scale in (False, True):
        both = [advantages(pool, group, name, scale_by_std=scale) for name in OBJECTIVES]
        assert both[0].tolist() == both[1].tolist()
        assert both[0].sum() == pytest.approx(0, abs=1e-12)


EQUAL_REWARDS = [
    [0.1] * 3,
    [0.1] * 10,
    [0.7] * 32,
    [0.1 + 0.2, 0.3, 0.3, 0.3],
    [sum([0.1] * 10), 1.0, 1.0, 1.0],
    [1e-7, 0.0, 0.0, 0.0],
]


@pytest.mark.parametrize("rewards", EQUAL_REWARDS, ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("scale", [False, True])
def test_a_uniform_pool_gets_exactly_zeros(rewards, objective, scale):
    pool, group = grouped(rewards)
    found = advantages(pool, group, objective, scale_by_std=scale)
    assert found.dtype == np.float64
    assert found.tolist() == [0.0] * len(group)


def test_the_trap_that_this_avoids_exists():
    """Equal floats whose mean is off by a rounding: TRL's formula finds a signal in them."""
    assert np.any(np.array([0.1] * 3) - np.mean([0.1] * 3) != 0)
    assert np.any(trl([0.1 + 0.2, 0.3, 0.3, 0.3]) != 0)


def test_a_uniform_group_of_a_mixed_pool():
    """No signal within the group, but the pool says how good its members are: 1 − 7/8."""
    pool = Pool("x", [1, 1, 1, 1, 1, 1, 1, 0])
    group = select_group(Pool("x", [1, 1, 1, 1]), 4)
    assert advantages(pool, group, "grpo").tolist() == [0.0] * 4
    assert advantages(pool, group, "reference").tolist() == [0.125] * 4


def test_groups_of_one_and_of_none():
    pool, group = grouped([1.0])
    for objective in OBJECTIVES:
        for scale in (False, True):
            assert advantages(pool, group, objective, scale_by_std=scale).tolist() == [0.0]
    empty, nothing = grouped([])
    assert advantages(empty, nothing).shape == (0,)


@given(
    rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=32),
    objective=st.sampled_from(OBJECTIVES),
    scale=st.booleans(),
)
def test_one_finite_advantage_per_member_in_the_order_of_rewards(rewards, objective, scale):
    pool, group = grouped(rewards)
    found = advantages(pool, group, objective, scale_by_std=scale)
    assert found.shape == (len(group),)
    assert np.isfinite(found).all()
    if not is_uniform(group.rewards):
        assert found[group.rewards == 1].min() > 0 > found[group.rewards == 0].max()


def test_an_unknown_objective_names_what_exists():
    pool, group = grouped([0, 1])
    with pytest.raises(
        ValueError, match=r"^objective must be one of .*reference.*; got 'ppo'$"
    ) as error:
        advantages(pool, group, objective="ppo")
    assert "grpo" in str(error.value)
