"""All first, then hard ones only."""

import pytest

from rollwise.prompts import Curriculum

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
        ({"uniform_steps": 0}, 0),
        ({"uniform_steps": 7}, 7),
        ({"uniform_steps": 3, "uniform_epochs": 9}, 3),
    ],
)
def test_when_it_switches(settings, switch):
    sampler = Curriculum(range(10), 5, levels=LEVELS, **settings)
    for step in range(12):
        batch = sampler.ask()
        assert sampler.hard_only == (step >= switch), step
        assert set(batch) == HARD or not sampler.hard_only


def test_levels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^levels must have one entry for each of the 3 prompts"):
        Curriculum("abc", 1, levels=[4, 4])
    with pytest.raises(ValueError, match=r"number of prompts of level 4 or above \(1\), got 2$"):
        Curriculum("abc", 2, levels=[4, None, 3])


def test_a_state_with_other_levels_is_refused():
    state = Curriculum("abc", 1, levels=[4, 4, 1]).state_dict()
    with pytest.raises(ValueError, match="of 2 hard prompts, this sampler has 1: levels or"):
        Curriculum("abc", 1, levels=[4, 1, 1]).load_state_dict(state)
