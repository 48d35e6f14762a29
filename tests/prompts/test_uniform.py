"""Uniform sampling: every prompt as often as any other."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise import PromptSampler, Uniform


@st.composite
def samplers(draw):
    count = draw(st.integers(1, 30))
    return Uniform(range(count), draw(st.integers(1, count)), seed=draw(st.integers(0, 99)))


def asked(sampler, batches):
    return [sampler.ask() for _ in range(batches)]


@given(samplers(), st.integers(1, 40))
def test_each_prompt_comes_once_an_epoch_and_none_twice_in_a_batch(sampler, batches):
    drawn = asked(sampler, batches)
    assert all(len(set(batch)) == len(batch) == sampler.batch_size for batch in drawn)
    in_order = [key for batch in drawn for key in batch]
    size = len(sampler.keys)
    for start in range(0, len(in_order), size):
        epoch = in_order[start : start + size]
        assert max(Counter(epoch).values()) == 1
    assert sampler.metrics()["epoch"] == pytest.approx(len(in_order) / size)


@given(samplers(), st.integers(0, 20))
def test_a_state_goes_on_where_it_was_taken(sampler, batches):
    asked(sampler, batches)
    state = sampler.state_dict()
    restored = Uniform(sampler.keys, sampler.batch_size, sampler.seed)
    restored.load_state_dict(state)
    assert asked(restored, 12) == asked(sampler, 12)
    assert restored.metrics() == sampler.metrics()


def test_a_seed_makes_the_order():
    first, again, other = (Uniform(range(50), 10, seed=seed) for seed in (1, 1, 2))
    drawn = asked(first, 15)
    assert drawn == asked(again, 15)
    assert drawn != asked(other, 15)


def test_epochs_are_shuffled_anew():
    sampler = Uniform(range(50), batch_size=50)
    one, two = asked(sampler, 2)
    assert one != two != sorted(two)


def test_every_order_is_as_likely():
    """Of three prompts there are six orders: 6,000 seeds give each 1,000 ± 5 σ (σ ≈ 29)."""
    orders = Counter(tuple(Uniform("abc", 3, seed=seed).ask()) for seed in range(6000))
    assert len(orders) == 6
    assert all(abs(count - 1000) < 5 * 29 for count in orders.values())


def test_keys_come_back_as_they_were_given():
    keys = ["p1", 7, "π"]
    assert set(Uniform(keys, batch_size=3).ask()) == set(keys)
    assert set(Uniform({"a": 0.1, "b": 0.2}, batch_size=2).ask()) == {"a", "b"}


def test_what_it_is_told_changes_no_batch():
    sampler, other = Uniform("abcd", 2), Uniform("abcd", 2)
    batch = sampler.ask()
    other.ask()
    sampler.tell(batch, correct=[1, 0], drawn=[4, 4])
    assert asked(sampler, 5) == asked(other, 5)


def test_it_is_a_prompt_sampler():
    sampler: PromptSampler = Uniform("ab", 1)
    assert all(hasattr(sampler, verb) for verb in ("ask", "tell", "state_dict", "metrics"))


@pytest.mark.parametrize(
    ("keys", "batch_size", "message"),
    [
        ("aba", 1, "keys must be different"),
        ("abc", 4, r"batch_size must be at most the number of prompts \(3\), got 4"),
        ("abc", 0, "batch_size must be at least 1, got 0"),
        ("", 1, r"the number of prompts \(0\)"),
    ],
)
def test_what_it_refuses(keys, batch_size, message):
    with pytest.raises(ValueError, match=message):
        Uniform(keys, batch_size)


def test_the_state_of_another_set_is_refused():
    with pytest.raises(ValueError, match="over 4 prompts, this one has 3"):
        Uniform("abc", 1).load_state_dict(Uniform("abcd", 1).state_dict())
