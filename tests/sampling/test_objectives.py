"""Advantages against hand computations, TRL's formula, and enumeration; baselines from a belief."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollwise import Balanced, FixedCount, Pool, PositiveFocused, Rounds, advantages, select_group
from rollwise.sampling.objectives import GRPO
from rollwise.sampling.stopping import Stopping

# The functions of the pass rate, and what 2 correct of 8, p̂ = ¼, weigh in a group of 4 with 2
# correct: A₊ = f′(p̂)·p̂(1 − p̂)·4/2.
PLUG_IN = {
    "linear": 2 * 3 / 16,
    "log": 2 * 3 / 4,
    "sqrt": 2 * 3 / 16 / (2 * sqrt(1 / 4)),
    "arcsine": 2 * sqrt(3 / 16),
}
CENTRED, SIDED = ["reference", "grpo"], [*PLUG_IN]


def grouped(rewards, size: int = 4):
    pool = Pool("x", rewards)
    return pool, select_group(pool, size)


def trl(rewards) -> np.ndarray:
    """TRL's GRPOTrainer: rewards − mean, over torch's std (n − 1 below) + 1e-4."""
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
    return (np.array(rewards) - mean) / (variance**0.5 + 1e-4)


QUARTER = [0, 0, 1, 0, 0, 0, 1, 0]
SCALE = (1.5 / 7) ** 0.5 + 1e-4


@pytest.mark.parametrize(
    ("rewards", "settings", "expected"),
    [
        # 2 correct of 8: mean ¼, so ¾ and −¼, though the group, 0 1 2 6, is half correct.
        (QUARTER, {}, [-0.25, -0.25, 0.75, 0.75]),
        # Squares 2·(3/4)² + 6·(1/4)² = 3/2, over 7.
        (QUARTER, {"scale_by_std": True}, [x / SCALE for x in (-0.25, -0.25, 0.75, 0.75)]),
        (QUARTER, {"objective": "grpo"}, [-0.5, -0.5, 0.5, 0.5]),
        # (.9 + .1 + .8 + .2 + .1 + .3)/6 = .4, where counts above the threshold would say 2/6.
        ([0.9, 0.1, 0.8, 0.2, 0.1, 0.3], {}, [0.5, -0.3, 0.4, -0.2]),
        # No baseline; uniform pools keep theirs, or RAFT would skip the prompts that are solved.
        ([0.5, -1, 1, 2], {"objective": "reward"}, [0.5, -1, 1, 2]),
        ([1, 1], {"objective": "reward"}, [1, 1]),
        ([], {"objective": "reward"}, []),
    ],
)
def test_advantages_by_hand(rewards, settings, expected):
    assert advantages(*grouped(rewards), **settings) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("correct", [1, 3, 7])
def test_log_with_all_responses_is_maxrl(correct):
    """(r − r̄)/r̄ (arXiv 2602.02710)."""
    rewards = [1.0] * correct + [0.0] * (8 - correct)
    pool, mean = Pool("x", rewards), correct / 8
    group = select_group(pool, 8, strategy="all")
    found = advantages(pool, group, "log")
    wanted = (np.array(rewards) - mean) / mean
    assert sorted(found) == pytest.approx(sorted(wanted))


@given(
    rewards=st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=24), half=st.integers(1, 6)
)
def test_scaled_grpo_is_trls_formula(rewards, half):
    pool, group = grouped(rewards, 2 * half)
    assume(not group.zero_variance)
    found = advantages(pool, group, objective="grpo", scale_by_std=True)
    assert found == pytest.approx(trl(group.rewards.tolist()), rel=1e-9, abs=1e-12)


EQUAL_REWARDS = [
    *([], [1.0], [0.1] * 3, [0.1] * 10, [0.7] * 32, [0.1 + 0.2, 0.3, 0.3, 0.3]),
    *([sum([0.1] * 10), 1.0, 1.0, 1.0], [1e-7, 0.0, 0.0, 0.0], [0.7, 0.7 + 1e-7]),
]


@pytest.mark.parametrize(
    ("rewards", "objective", "settings"),
    [
        *((r, name, {}) for r in EQUAL_REWARDS for name in (*CENTRED, *SIDED)),
        *((r, name, {"scale_by_std": True}) for r in EQUAL_REWARDS for name in CENTRED),
        *((r, name, {}) for r in ([0.9, 0.8, 1.0], [0.0, 0.7, 0.2]) for name in SIDED),
    ],
)
def test_a_uniform_pool_or_one_on_one_side_gets_exactly_zeros(rewards, objective, settings):
    pool, group = grouped(rewards)
    found = advantages(pool, group, objective, **settings)
    assert found.dtype == np.float64
    assert found.tolist() == [0.0] * len(group)


@pytest.mark.parametrize("objective", SIDED)
def test_the_sides_are_weighed_by_the_derivative_and_a_group_of_one_keeps_its_weight(objective):
    """k/k₊ is 1 there: half of what the correct half of a balanced group has."""
    pool, group = grouped(QUARTER)
    value = PLUG_IN[objective]
    found = advantages(pool, group, objective)
    assert found == pytest.approx([-value, -value, value, value], rel=1e-12)
    positives = select_group(pool, 4, "positives")
    assert advantages(pool, positives, objective) == pytest.approx([value / 2] * 2)
    negatives = select_group(Pool("x", [0, 0]), 2)
    assert advantages(pool, negatives, objective) == pytest.approx([-value / 2] * 2)


def test_unbiased_estimates_of_a_stopped_pool():
    """Balanced(2, 2), one at a time, ended by a correct draw at 8: (K − 1)/(N − 1) is 1/7, and
    (K − 1)(N − K)/((N − 1)(N − 2)) is 6/42."""
    pool, group = grouped([0, 0, 1, 0, 0, 0, 0, 1])
    pool.stopping = Stopping(Balanced(2, 2), Rounds(1, 32), 32)
    for objective, weight in [("linear", 1 / 7), ("log", 6 / 7), ("arcsine", sqrt(1 / 7))]:
        found = advantages(pool, group, objective, estimates="unbiased")
        assert found == pytest.approx([-2 * weight, -2 * weight, 2 * weight, 2 * weight])


def test_counts_that_the_stopping_cannot_come_to_have_plug_in_weights():
    """Correct in the first round of 8, and yet 15 drawn: a draw was lost."""
    pool, group = grouped([0] * 7 + [1] * 8)
    pool.stopping = Stopping(PositiveFocused(1), Rounds(8, 4), 32)
    for objective in SIDED:
        found = advantages(pool, group, objective, estimates="unbiased")
        assert found.tolist() == advantages(pool, group, objective).tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "grpo", "estimates": "unbiased"}, "is for objective linear, log, sqrt, "),
        ({"objective": "log", "scale_by_std": True}, "is for objective reference, grpo; objective"),
        ({"objective": "grpo", "baseline": "belief"}, "is for objective linear, log, sqrt, arcsin"),
        ({"objective": "linear", "estimates": "map"}, "^estimates must be one of plug_in, unbias"),
        ({"objective": "ppo"}, "^objective must be one of reference, grpo, .*; got 'ppo'$"),
        ({"objective": GRPO(), "scale_by_std": True}, r"must be set in the objective, GRPO\(scale"),
        (
            {"objective": "linear", "estimates": "unbiased"},
            r"stopping rule of prompt 'x': .*RolloutSession.*pool\.stopping = ",
        ),
        ({"objective": "linear", "baseline": "belief"}, "believed of prompt 'x': pass priors="),
    ],
)
@pytest.mark.parametrize("rewards", [[0, 1], [0, 0]])
def test_settings_that_do_not_go_together_or_with_the_pool_are_refused(settings, message, rewards):
    with pytest.raises(ValueError, match=message):
        advantages(*grouped(rewards), **settings)


def pool_of(rewards, prior, stopping=None):
    pool = Pool("x", rewards)
    pool.prior, pool.stopping = prior, stopping
    return pool


def against_belief(pool, objective="linear"):
    return advantages(pool, select_group(pool, 1, "all"), objective, baseline="belief")


SINGLE = Stopping(FixedCount(1), Rounds(1, rounds=1), 1)
THREE = Stopping(FixedCount(3), Rounds(3, rounds=1), 3)


@pytest.mark.parametrize(
    ("rewards", "stopping", "objective", "expected"),
    [
        # Belief Beta(1, 3), so ¼: a correct response is worth ¾, an incorrect one −¼.
        ([1.0], SINGLE, "linear", [0.75]),
        ([0.0], SINGLE, "linear", [-0.25]),
        # Of a fixed count b_i = (α + Σ_{j≠i} r_j)/(α + β + 2): (1 + 1)/6 and (1 + 2)/6.
        ([1.0, 0.0, 1.0], THREE, "linear", [1 - 2 / 6, 0 - 3 / 6, 1 - 2 / 6]),
        # f′(¼): 1/p = 4; 1/(2√p) = 1; 1/√(p(1 − p)) = 4/√3.
        ([1.0], SINGLE, "log", [0.75 * 4]),
        ([1.0], SINGLE, "sqrt", [0.75]),
        ([1.0], SINGLE, "arcsine", [0.75 * 4 / sqrt(3)]),
    ],
)
def test_against_a_belief_every_response_teaches(rewards, stopping, objective, expected):
    found = against_belief(pool_of(rewards, (1.0, 3.0), stopping), objective)
    assert found == pytest.approx(expected)


def test_where_sampling_may_stop_only_earlier_draws_count():
    """b_i = 1/4, 2/5, 2/6 with Beta(1, 3); times 2 draws at least over E[N] under the belief."""
    stopping = Stopping(Balanced(1, 1), Rounds(1, rounds=4), 4, prior=(1.0, 3.0))
    found = against_belief(pool_of([1.0, 0.0, 1.0], (1.0, 3.0), stopping))
    share = 2 / stopping.expected_draws[0, 0]
    assert found == pytest.approx(np.array([3 / 4, -2 / 5, 4 / 6]) * share)


@pytest.mark.parametrize("alpha", [0.25, 1, 8, 15])
def test_what_is_fixed_and_how_much_a_prompt_weighs_whatever_is_believed(alpha):
    """Two of both kinds take four draws at least, also where a prompt may be given up."""
    prior = (alpha, 16 - alpha)
    assert Stopping(FixedCount(8), Rounds(8, rounds=1), 8, prior).is_fixed
    stopping = Stopping(Balanced(2, 2), Rounds(1, 32), 32, prior, give_up_below=0.1)
    assert not stopping.is_fixed
    assert stopping.weight * stopping.expected_draws[0, 0] == pytest.approx(4)


def sequences_of(stopping, rewards=()):
    """All reward sequences after which sampling stops."""
    correct = int(sum(rewards))
    if stopping.stops[correct, len(rewards) - correct]:
        return [rewards]
    return [ended for reward in (0.0, 1.0) for ended in sequences_of(stopping, (*rewards, reward))]


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize(
    "rule", [Balanced(1, 1), Balanced(2, 2), PositiveFocused(1), FixedCount(3)], ids=repr
)
def test_the_expected_gradient_is_the_expected_number_of_draws_whatever_the_rule(rule, p):
    """E Σ A_i ∂log P(r_i)/∂p = E[N]·(share), for a belief that is wrong (Wald's identity).

    By enumeration of every sequence of at most 6 draws; ∂log P/∂p is 1/p for a correct response
    and −1/(1 − p) for an incorrect one.
    """
    stopping = Stopping(rule, Rounds(1, rounds=6), 6, prior=(2.0, 1.0))
    gradient = draws = total = 0.0
    for rewards in sequences_of(stopping):
        chance = float(np.prod([p if reward else 1 - p for reward in rewards]))
        scores = np.where(np.array(rewards) > 0.5, 1 / p, -1 / (1 - p))
        found = against_belief(pool_of(rewards, (2.0, 1.0), stopping))
        gradient += chance * float(found @ scores)
        draws, total = draws + chance * len(rewards), total + chance
    share = stopping.minimum_draws[0, 0] / stopping.expected_draws[0, 0]
    assert total == pytest.approx(1.0)
    assert gradient == pytest.approx(draws * share)
