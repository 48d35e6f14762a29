"""Baselines from a belief."""

from math import sqrt

import numpy as np
import pytest

from rollwise import Balanced, FixedCount, Pool, PositiveFocused, Rounds, advantages, select_group
from rollwise.sampling.stopping import Stopping


def pool_of(rewards, prior, stopping=None):
    pool = Pool("x", rewards)
    pool.prior, pool.stopping = prior, stopping
    return pool


def advantages_of(pool, objective="linear"):
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
    found = advantages_of(pool_of(rewards, (1.0, 3.0), stopping), objective)
    assert found == pytest.approx(expected)


def test_where_sampling_may_stop_only_earlier_draws_count():
    """b_i = 1/4, 2/5, 2/6 with Beta(1, 3); times 2 draws at least over E[N] under the belief."""
    stopping = Stopping(Balanced(1, 1), Rounds(1, rounds=4), 4, prior=(1.0, 3.0))
    found = advantages_of(pool_of([1.0, 0.0, 1.0], (1.0, 3.0), stopping))
    share = 2 / stopping.expected_need[0, 0]
    assert found == pytest.approx(np.array([3 / 4, -2 / 5, 4 / 6]) * share)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.25, 15.75)])
def test_a_prompt_that_may_be_given_up_weighs_as_any_other(prior):
    stopping = Stopping(Balanced(2, 2), Rounds(1, 32), 32, prior, give_up_below=0.1)
    assert stopping.fewest == 4


@pytest.mark.parametrize("alpha", range(1, 16))
def test_a_fixed_count_is_fixed_whatever_is_believed(alpha):
    assert Stopping(FixedCount(8), Rounds(8, rounds=1), 8, prior=(alpha, 16 - alpha)).is_fixed


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
        found = advantages_of(pool_of(rewards, (2.0, 1.0), stopping))
        gradient += chance * float(found @ scores)
        draws, total = draws + chance * len(rewards), total + chance
    share = stopping.certain_need[0, 0] / stopping.expected_need[0, 0]
    assert total == pytest.approx(1.0)
    assert gradient == pytest.approx(draws * share)


def test_a_belief_is_asked_for_where_none_is_known():
    with pytest.raises(ValueError, match=r"what was believed of prompt 'x': pass priors="):
        advantages_of(Pool("x", [1.0]))
