"""What all samplers share: asking for other counts, leaving out, and states that do not fit."""

import numpy as np
import pytest

from rollwise.prompts import CDAS, BatchSampler, Forecaster, Prioritized, PromptSampler, Uniform


class FirstOfAll(BatchSampler):
    """The least that a sampler of one's own must write."""

    def _choose(self, count, exclude):
        allowed = np.ones(len(self.keys), dtype=bool) if exclude is None else ~exclude
        return np.flatnonzero(allowed)[:count]


def test_a_sampler_of_ones_own_needs_one_method():
    sampler: PromptSampler = FirstOfAll("abc", 2)
    assert sampler.ask() == ["a", "b"]
    assert sampler.ask(1, np.array([True, False, False])) == ["b"]
    sampler.tell(["b"], [1], [2])
    assert sampler.metrics() == {}
    other = FirstOfAll("abc", 2)
    other.load_state_dict(sampler.state_dict())
    assert other.asks == 2


def test_more_or_fewer_can_be_asked_for():
    for sampler in (Uniform(range(9), 2), CDAS(range(9), 2), Prioritized(range(9), 2)):
        assert len(set(sampler.ask(5))) == 5
        assert len(set(sampler.ask(100))) == 9
        with pytest.raises(ValueError, match=r"^count must be at least 1, got 0$"):
            sampler.ask(0)


def test_a_second_batch_of_a_step_without_those_of_the_first():
    """As refilling needs it: CDAS alone would choose the same prompts again."""
    sampler = CDAS(range(9), 3, warmup_epochs=0)
    first = sampler.ask()
    assert sampler.ask() == first
    second = sampler.ask(exclude=np.isin(np.arange(9), first))
    assert len(set(first + second)) == 6


def test_an_exclusion_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"each of the 3 prompts .*, got shape \(2,\)$"):
        Uniform("abc", 1).ask(exclude=[True, False])


def test_a_sampler_of_ones_own_believes_nothing():
    sampler = FirstOfAll("abc", 1)
    assert isinstance(sampler, Forecaster)
    sampler.tell(["a"], [1], [4])
    assert np.isnan(sampler.expected_pass_rates(["a", "b"])).all()
    assert sampler.pass_rate_priors(["a", "b"]).tolist() == [[1, 1], [1, 1]]


class Sure(FirstOfAll):
    """One that expects something, and leaves it at that."""

    def expected_pass_rates(self, keys):
        return np.array([{"a": 0.25, "b": 1.0, "c": np.nan}[key] for key in keys])


def test_what_is_expected_counts_as_four_responses():
    """α = 1 + 4p̂ and β = 1 + 4(1 − p̂)."""
    priors = Sure("abc", 1).pass_rate_priors(["b", "c", "a"])
    assert priors.tolist() == [[5, 1], [1, 1], [2, 4]]


def test_a_state_of_another_sampler_is_refused():
    with pytest.raises(ValueError, match=r"^the state is of the sampler Uniform, this one is CDAS"):
        CDAS("abc", 1).load_state_dict(Uniform("abc", 1).state_dict())


def test_a_state_that_lacks_something_says_what():
    with pytest.raises(ValueError, match=r"^the state lacks 'form'; it has asks$"):
        CDAS("abc", 1).load_state_dict({"asks": 3})


def test_an_array_of_another_length_is_refused_and_nothing_changes():
    sampler = CDAS("abc", 1)
    state = {**sampler.state_dict(), "visits": np.zeros(4), "competence": 7.0}
    with pytest.raises(ValueError, match=r"over 4 prompts, this one has 3: 'visits' has shape"):
        sampler.load_state_dict(state)
    assert sampler.competence == 0


def test_the_order_of_the_keys_matters_to_a_state():
    with pytest.raises(ValueError, match=r"of 3 other prompts, or of these in another order"):
        CDAS("acb", 1).load_state_dict(CDAS("abc", 1).state_dict())


@pytest.mark.parametrize("counts", [[0.5], [np.nan], [None], ["4"], [True]])
def test_counts_must_be_integers(counts):
    with pytest.raises(TypeError, match=r"^correct must be integers, got \["):
        Uniform("abc", 1).tell(["a"], counts, [4])


def test_whole_floats_are_integers():
    sampler = Prioritized("abc", 1)
    sampler.tell(["a"], np.array([2.0]), np.array([4.0]))
    assert sampler.expected_pass_rates(["a"]).tolist() == [0.5]


def test_a_seed_is_not_negative():
    with pytest.raises(ValueError, match=r"^seed must be at least 0, got -1$"):
        Uniform("abc", 1, seed=-1)
