"""From pool to group: composition in every corner, order, and randomness."""

from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.sampling import Pool, select_group
from rollwise.sampling.selection import Strategy

STRATEGIES = get_args(Strategy)


def pool_of(positives: int, negatives: int, seed: int = 0) -> Pool:
    """A pool with so many correct and incorrect responses, in a shuffled order."""
    rewards = np.repeat([1.0, 0.0], [positives, negatives])
    return Pool("x", np.random.default_rng(seed).permutation(rewards))


def sides(group) -> tuple[int, int]:
    """How many members are correct and how many are not."""
    correct = int((group.rewards > 0.7).sum())
    return correct, len(group) - correct


@given(
    positives=st.integers(0, 40),
    negatives=st.integers(0, 40),
    half=st.integers(1, 10),
    random=st.booleans(),
)
def test_a_group_is_full_and_as_balanced_as_its_pool_allows(positives, negatives, half, random):
    """Of the compositions that fill the group, the one whose sides differ least."""
    pool, size = pool_of(positives, negatives), 2 * half
    group = select_group(pool, size, rng=np.random.default_rng(0) if random else None)
    members = min(size, len(pool))
    possible = [
        (a, members - a) for a in range(members + 1) if a <= positives and members - a <= negatives
    ]
    assert sides(group) == min(possible, key=lambda both: abs(both[0] - both[1]))


def test_positives_takes_correct_responses_only_and_all_the_whole_pool_whatever_the_size():
    pool = pool_of(5, 11)
    correct = np.flatnonzero(pool.correct).tolist()
    for size in (1, 3, 5, 6, 100):
        assert select_group(pool, size, "positives").indices.tolist() == correct[:size]
        assert select_group(pool, size, "all").indices.tolist() == list(range(16))
    assert len(select_group(pool_of(0, 4), 3, "positives")) == 0
    assert len(select_group(Pool("x"), 4, "all")) == 0


@given(
    rewards=st.lists(
        st.one_of(st.floats(-3, 3), st.sampled_from([0, 0.5, 1])), min_size=1, max_size=9
    ),
    size=st.integers(1, 9),
    random=st.booleans(),
)
def test_no_subset_of_the_size_varies_more_than_max_variance(rewards, size, random):
    rng = np.random.default_rng(0) if random else None
    group = select_group(Pool("x", rewards), size, "max_variance", rng)
    members = min(size, len(rewards))
    assert len(set(group.indices.tolist())) == members
    best = max(np.var(subset) for subset in combinations(rewards, members))
    assert np.var(group.rewards) == pytest.approx(best, abs=1e-12)


def test_max_variance_of_shaped_rewards():
    """Of 4, one, two or three high: .1425, .1819, .1225. Of 3, one or two: .1800, .1622."""
    pool = Pool("x", [0.1, 0.9, 0.0, 0.4, 0.8, 0.0, 0.5])
    assert select_group(pool, 4, "max_variance").indices.tolist() == [1, 2, 4, 5]
    assert select_group(pool, 2, "max_variance").indices.tolist() == [1, 2]
    assert select_group(pool, 3, "max_variance").indices.tolist() == [1, 2, 5]


@given(positives=st.integers(0, 20), negatives=st.integers(0, 20), half=st.integers(1, 5))
def test_max_variance_of_zeros_and_ones_is_the_balanced_group(positives, negatives, half):
    pool = pool_of(positives, negatives)
    varied, balanced = (select_group(pool, 2 * half, s) for s in ("max_variance", "balanced"))
    assert varied.indices.tolist() == balanced.indices.tolist()


def test_max_variance_breaks_ties_by_draw_order_or_at_random():
    pool = Pool("x", [0.5, 0, 1, 0, 1, 0.5, 0, 1])
    assert select_group(pool, 2, "max_variance").indices.tolist() == [1, 2]
    rng = np.random.default_rng(0)
    chosen = {tuple(select_group(pool, 2, "max_variance", rng).indices) for _ in range(300)}
    assert chosen == {tuple(sorted((i, j))) for i in (1, 3, 6) for j in (2, 4, 7)}


@pytest.mark.parametrize(
    ("rewards", "size", "members"),
    [
        ([0, 0, 0, 1, 0, 1, 1, 0], 4, [0, 1, 3, 5]),
        ([0, 0, 0, 1, 0, 1, 1, 0], 6, [0, 1, 2, 3, 5, 6]),
        ([0, 0, 1, 0, 0], 4, [0, 1, 2, 3]),
        ([0, 0, 0, 0, 1], 4, [0, 1, 2, 4]),
    ],
)
def test_without_rng_the_first_of_each_side_in_draw_order(rewards, size, members):
    assert select_group(Pool("x", rewards), size).indices.tolist() == members


def test_each_member_of_a_side_is_equally_likely():
    """k = 4 of 5 correct and 11 incorrect: 2/5 and 2/11, each within 4 standard errors."""
    pool, times = pool_of(5, 11), 4000
    rng = np.random.default_rng(11)
    chosen = np.zeros(len(pool))
    for _ in range(times):
        chosen[select_group(pool, 4, rng=rng).indices] += 1
    share = np.where(pool.correct, 2 / 5, 2 / 11)
    errors = np.abs(chosen / times - share) / np.sqrt(share * (1 - share) / times)
    assert errors.max() <= 4


@pytest.mark.parametrize(
    ("size", "strategy", "error", "message"),
    [
        *(
            (size, "balanced", ValueError, f"size must be even for strategy 'balanced'.*got {size}")
            for size in (1, 3, 7)
        ),
        *((0, each, ValueError, "^size must be at least 1, got 0$") for each in STRATEGIES),
        *((4.0, each, TypeError, r"^size must be an integer, got 4\.0$") for each in STRATEGIES),
        (4, "variance", ValueError, "^strategy must be one of balanced, max_.*; got 'variance'$"),
    ],
)
def test_what_cannot_be_is_refused(size, strategy, error, message):
    with pytest.raises(error, match=message):
        select_group(pool_of(4, 4), size, strategy)
