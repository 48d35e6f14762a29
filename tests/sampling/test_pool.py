"""Pools: counts, order, when they are uniform; the seeds of draws; from pool to group."""

import pickle
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollwise import (
    FixedCount,
    Pool,
    RolloutSession,
    Rounds,
    Score,
    has_zero_variance,
    select_group,
)
from rollwise.sampling import draw_seed
from rollwise.sampling.pool import POSITIVE_THRESHOLD
from rollwise.sampling.selection import Strategy

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


SCORES = [Score(0.2, acc=1.0), Score(0.9, acc=0.0), 1.0, Score(0.4, parts={"format": 1.0})]


def test_acc_says_what_is_correct_and_the_reward_what_is_learned_from():
    """In the session too, whose draws come back in any order, and which can be pickled."""
    session = RolloutSession(["x"], FixedCount(4), Rounds(4, 1), positive_threshold=0.5)
    draws = session.next_draws()
    for draw in reversed(draws[1:]):
        session.record(draw, SCORES[draw.index])
    session = pickle.loads(pickle.dumps(session))
    session.record(draws[0], SCORES[0])
    pool = session.pools["x"]
    assert (pool.rewards.tolist(), pool.rewards.dtype) == ([0.2, 0.9, 1.0, 0.4], float)
    assert (pool.correct.tolist(), pool.positives) == ([True, False, True, False], 2)
    assert pool.scores[3].parts == {"format": 1.0}
    balanced = select_group(pool, 2)
    assert (balanced.indices.tolist(), balanced.rewards.tolist()) == ([0, 1], [0.2, 0.9])
    assert Pool("x", [Score(0.5, acc=a) for a in (0.0, 1.0)]).zero_variance


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (True, 1.0),
        (np.float32(0.5), 0.5),
        ({"score": 0.5}, 0.5),
        ({"score": -1, "acc": False, "pred": "7"}, {"score": -1.0, "acc": 0.0}),
        ({"score": 7, "acc": 7}, 7.0),  # as verl's own manager says of a plain number
        ({"score": 1, "acc": None, "n": np.int64(3)}, {"score": 1.0, "acc": 1.0, "n": 3.0}),
    ],
)
def test_what_reward_functions_return_is_read_and_told_in_one_form(found, told):
    assert Score.of(found).told == Score.of(Score.of(found).told).told == told


@pytest.mark.parametrize(
    ("found", "said"),
    [
        *((found, "one finite number") for found in (None, "1", [1.0], float("nan"), 1j)),
        *(({"score": found}, "a finite `score`") for found in (None, "1", float("inf"))),
        ({"acc": 1}, "a finite `score`"),
        *(({"score": 1, "acc": acc}, "an `acc`") for acc in ("yes", 2, -1, float("nan"))),
    ],
)
def test_what_is_no_score_is_refused(found, said):
    with pytest.raises(ValueError, match=said):
        Score.of(found)


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


def test_a_seed_hangs_on_run_step_key_and_index():
    """A hash of "1" + "11" must not be that of "11" + "1", nor that of 1 that of "1"."""
    for named in (
        [(1, 2, "x", 3), (2, 2, "x", 3), (1, 1, "x", 3), (1, 2, "y", 3), (1, 2, "x", 4)],
        [(1, 11, "1", 1), (11, 1, "1", 1), (1, 1, "11", 1), (1, 1, "1", 11), (1, 1, 11, 1)],
    ):
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
    """Of the compositions that fill the group, the one whose sides differ least.

    In draw order it is that of `max_variance`.
    """
    pool, size = pool_of(positives, negatives), 2 * half
    group = select_group(pool, size, rng=np.random.default_rng(0) if random else None)
    members = min(size, len(pool))
    possible = [
        (a, members - a) for a in range(members + 1) if a <= positives and members - a <= negatives
    ]
    assert sides(group) == min(possible, key=lambda both: abs(both[0] - both[1]))
    if not random:
        varied = select_group(pool, size, "max_variance")
        assert varied.indices.tolist() == group.indices.tolist()


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


def test_max_variance_breaks_ties_by_draw_order_or_at_random():
    pool = Pool("x", [0.5, 0, 1, 0, 1, 0.5, 0, 1])
    assert select_group(pool, 2, "max_variance").indices.tolist() == [1, 2]
    rng = np.random.default_rng(0)
    chosen = {tuple(select_group(pool, 2, "max_variance", rng).indices) for _ in range(300)}
    assert chosen == {tuple(sorted((i, j))) for i in (1, 3, 6) for j in (2, 4, 7)}


def test_without_rng_the_first_of_each_side_in_draw_order():
    for rewards, size, members in (
        ([0, 0, 0, 1, 0, 1, 1, 0], 4, [0, 1, 3, 5]),
        ([0, 0, 0, 1, 0, 1, 1, 0], 6, [0, 1, 2, 3, 5, 6]),
        ([0, 0, 1, 0, 0], 4, [0, 1, 2, 3]),
        ([0, 0, 0, 0, 1], 4, [0, 1, 2, 4]),
    ):
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
        (3, "balanced", ValueError, "size` must be even for strategy 'balanced'.*got 3"),
        *((0, each, ValueError, "^size must be at least 1, got 0$") for each in STRATEGIES),
        *((4.0, each, TypeError, r"^size must be an integer, got 4\.0$") for each in STRATEGIES),
        (4, "variance", ValueError, "^strategy must be one of balanced, max_.*; got 'variance'$"),
    ],
)
def test_what_cannot_be_is_refused(size, strategy, error, message):
    with pytest.raises(error, match=message):
        select_group(pool_of(4, 4), size, strategy)
