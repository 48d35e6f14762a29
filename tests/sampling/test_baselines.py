"""Baselines that other prompts of a step move."""

import itertools

import numpy as np
import pytest

import rollwise as rw
from rollwise.sampling.baselines import belief_baseline, shifted_prior


def pool_of(rewards, prior, key="q"):
    pool = rw.Pool(key, rewards)
    pool.prior = prior
    return pool


def advantage_of(pool):
    group = rw.select_group(pool, 1, "all")
    return rw.advantages(pool, group, "linear", baseline="belief")[0]


def test_the_gradient_keeps_its_expectation():
    """Over all outcomes of three prompts, E[A·∇log π] = p(1 − p) with respect to logit p.

    Incorrect responses are longer than correct ones, and weigh more.
    """
    truth, expected = (0.2, 0.7, 0.4), ((2.0, 2.0), (1.0, 4.0), (3.0, 2.0))
    gradient = np.zeros(3)
    for rewards in itertools.product((0.0, 1.0), repeat=3):
        pools = [pool_of([r], prior) for r, prior in zip(rewards, expected, strict=True)]
        rw.shift_beliefs(pools, [5.0 - 3.0 * reward for reward in rewards])
        probability = np.prod([p if r else 1 - p for p, r in zip(truth, rewards, strict=True)])
        scores = np.subtract(rewards, truth)
        gradient += probability * scores * [advantage_of(pool) for pool in pools]
    assert gradient == pytest.approx([p * (1 - p) for p in truth])


def test_a_step_that_did_worse_than_expected_does_not_push_all_its_responses_away():
    """Of 100 prompts that are believed to be even, 20 are solved: the baseline is near 0.2."""
    pools = [pool_of([float(i < 20)], (2.0, 2.0)) for i in range(100)]
    before = sum(advantage_of(pool) for pool in pools)
    rw.shift_beliefs(pools)
    after = [advantage_of(pool) for pool in pools]
    assert before == pytest.approx(-30)
    assert abs(sum(after)) < 5
    assert min(after[:20]) > 0.7
    assert max(after[20:]) < 0


def test_a_shift_is_a_newton_step_from_the_other_prompts_alone():
    pools = [pool_of([1.0, 1.0], (3.0, 1.0)), pool_of([0.0], (1.0, 1.0)), pool_of([0.0], (1.0, 4))]
    rw.shift_beliefs(pools)
    assert [pool.shift for pool in pools] == pytest.approx(
        [
            (-0.5 - 0.2) / (1 + 0.25 + 0.16),
            (0.5 - 0.2) / (1 + 0.375 + 0.16),
            (0.5 - 0.5) / (1 + 0.375 + 0.25),
        ]
    )
    alpha, beta = shifted_prior(pools[0])
    assert alpha + beta == pytest.approx(4)
    assert np.log(alpha / beta) == pytest.approx(np.log(3) + pools[0].shift)
    assert belief_baseline(pools[2]) == pytest.approx([0.2])


def test_long_responses_weigh_more():
    """Half of the prompts are solved, as was believed, but the long responses are incorrect."""
    pools = [pool_of([float(i < 20)], (2.0, 2.0)) for i in range(40)]
    tokens = [10] * 20 + [30] * 20
    rw.shift_beliefs(pools, tokens)
    advantages = np.array([advantage_of(pool) for pool in pools])
    assert abs(advantages @ tokens) < 0.2 * 200  # unshifted: 0.5·10·20 − 0.5·30·20 = −200
    assert pools[0].shift == pytest.approx(
        0.5 * (10 * 19 - 30 * 20) / (10 * 19 + 30 * 20) / (1 / 39 + 1 / 4)
    )


def test_a_shift_is_bounded():
    """Beliefs near 1 hardly differ in probability, so that one step would lead far too low."""
    pools = [pool_of([0.0], (99.0, 1.0)) for _ in range(50)]
    rw.shift_beliefs(pools)
    assert {pool.shift for pool in pools} == {-2.0}


def test_one_prompt_alone_says_nothing_of_the_others():
    pools = [pool_of([0.0], (1.0, 1.0))]
    rw.shift_beliefs(pools)
    assert pools[0].shift == 0
    rw.shift_beliefs([])
