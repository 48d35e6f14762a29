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
        taken = walk.take(count)
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
    first = walk.take(50)
    assert first.tolist() == np.random.default_rng((4, 0)).permutation(50).tolist()
    assert walk.take(50).tolist() != first.tolist()
    assert Epochs(50, seed=4).take(50).tolist() == first.tolist()
    assert Epochs(50, seed=5).take(50).tolist() != first.tolist()


LEVELS = [1, 2, 3, 4, 5, None, 4, 5, 1, 4]
HARD = {3, 4, 6, 7, 9}


def batches(sampler, count):
    return [sampler.ask() for _ in range(count)]


def test_an_epoch_over_all_then_only_hard_ones():
    sampler = Curriculum(range(10), 5, levels=LEVELS)
    first = batches(sampler, 2)
    assert sorted(first[0] + first[1]) == list(range(10))
    assert sampler.metrics() == {"epoch": 1.0, "hard_only": 0.0, "visited": 0.0}
    assert all(set(batch) == HARD for batch in batches(sampler, 4))
    assert sampler.metrics() == {"epoch": 4.0, "hard_only": 1.0, "visited": 0.0}


@pytest.mark.parametrize(
    ("settings", "switch"),
    [
        ({"uniform_epochs": 0.5}, 1),
        ({"uniform_epochs": 0.6}, 2),
        ({"uniform_epochs": 3}, 6),
        ({"uniform_epochs": 0}, 0),
    ],
)
def test_when_it_switches(settings, switch):
    sampler = Curriculum(range(10), 5, levels=LEVELS, **settings)
    for step in range(12):
        batch = sampler.ask()
        assert sampler.hard_only == (step >= switch), step
        assert set(batch) == HARD or not sampler.hard_only


def test_visits_end_with_those_of_the_hard_prompts():
    sampler = Curriculum(range(10), 5, levels=LEVELS, visits=2)
    for _ in range(3):
        assert not sampler.exhausted
        batch = sampler.ask()
        sampler.tell(batch, [1] * 5, [2] * 5)
    assert sampler.exhausted


def test_levels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^levels must have one entry for each of the 3 prompts"):
        Curriculum("abc", 1, levels=[4, 4])
    with pytest.raises(ValueError, match=r"number of prompts of level 4 or above \(1\), got 2$"):
        Curriculum("abc", 2, levels=[4, None, 3])
