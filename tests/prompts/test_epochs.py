"""Shuffled epochs, over the ends of epochs and with some passed over; `Uniform`, `Curriculum`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise.prompts import Curriculum
from rollwise.prompts.epochs import Epochs


@given(total=st.integers(1, 30), data=st.data())
def test_every_epoch_has_each_once(total, data):
    """Whatever the batches: the n-th time that a member comes lies in the n-th epoch."""
    walk = Epochs(total, seed=3)
    counts = np.zeros(total, dtype=int)
    for count in data.draw(st.lists(st.integers(1, total), max_size=20)):
        taken = walk.take(count, np.zeros(total, dtype=bool))
        assert len(set(taken.tolist())) == count
        counts[taken] += 1
        assert counts.max() - counts.min() <= 1
        assert round(walk.progress * total) == counts.sum()


@given(
    total=st.integers(1, 30),
    over=st.sets(st.integers(0, 29)),
    counts=st.lists(st.integers(1, 30), max_size=20),
)
def test_those_passed_over_never_come(total, over, counts):
    walk = Epochs(total, seed=3)
    skipped = np.isin(np.arange(total), list(over))
    left = total - int(skipped.sum())
    for count in counts:
        taken = walk.take(min(count, total), skipped)
        assert len(set(taken.tolist())) == len(taken) == min(count, total, left)
        assert not skipped[taken].any()
        assert 0 <= walk.position <= total


def test_an_order_is_that_of_its_seed_and_epoch():
    walk = Epochs(50, seed=4)
    for epoch in (0, 1):
        expected = np.random.default_rng((4, epoch)).permutation(50)
        assert walk.take(50, np.zeros(50, dtype=bool)).tolist() == expected.tolist()


LEVELS = [1, 2, 3, 4, 5, None, 4, 5, 1, 4]
HARD = {3, 4, 6, 7, 9}


@pytest.mark.parametrize(("epochs", "switch"), [(0.5, 1), (0.6, 2), (1.0, 2), (3, 6), (0, 0)])
def test_first_all_prompts_then_only_hard_ones(epochs, switch):
    """Two batches are an epoch over all, one an epoch over the hard."""
    sampler, seen = Curriculum(range(10), 5, levels=LEVELS, uniform_epochs=epochs), []
    for step in range(12):
        batch = sampler.ask()
        if step < switch:
            seen += batch
            assert len(set(seen[step // 2 * 10 :])) == 5 * (step % 2 + 1)
            expected = {"epoch": (step + 1) / 2, "hard_only": 0.0, "visited": 0.0}
        else:
            assert set(batch) == HARD
            expected = {"epoch": step + 1.0 - switch, "hard_only": 1.0, "visited": 0.0}
        assert sampler.metrics() == expected


def test_visits_end_with_those_of_the_hard_prompts():
    sampler = Curriculum(range(10), 5, levels=LEVELS, visits=2)
    for _ in range(3):
        assert not sampler.exhausted
        batch = sampler.ask()
        sampler.tell(batch, [1] * 5, [2] * 5)
    assert sampler.exhausted
