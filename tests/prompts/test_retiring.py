"""Mastered prompts rest, come back when they fail, and fill up where nothing else is left."""

import pytest

from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Retiring, Uniform

WRAPPED = {
    "uniform": lambda: Uniform(range(20), 4),
    "curriculum": lambda: Curriculum(range(20), 4, levels=[5] * 20),
    "prioritized": lambda: Prioritized(range(20), 4),
    "cdas": lambda: CDAS(range(20), 4, warmup_epochs=0),
    "calibrated": lambda: CDAS(range(20), 4, form="calibrated", revisit_share=0.5),
    "posterior": lambda: Posterior(range(20), 4),
}


def solve(sampler, keys, times=2, correct=8):
    for _ in range(times):
        sampler.tell(keys, [correct] * len(keys), [8] * len(keys))


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("solved", [10, 17, 20])
def test_retired_prompts_come_only_where_too_few_others_are_left(name, solved):
    sampler = Retiring(WRAPPED[name]())
    solve(sampler, list(range(solved)))
    for _ in range(12):
        batch = sampler.ask()
        recalled = sum(key < solved for key in batch)
        assert len(set(batch)) == 4
        assert recalled == sampler.metrics()["recalled"] == max(0, 4 - (20 - solved))
    assert sampler.metrics()["retired"] == solved / 20


def test_only_solved_visits_in_a_row_retire():
    sampler = Retiring(Uniform("ab", 1), pass_rate=0.75, visits=3)
    for correct in (6, 8, 5, 6, 7):
        sampler.tell(["a"], [correct], [8])
        assert not sampler.retired.any()
    sampler.tell(["a"], [6], [8])
    assert sampler.retired.tolist() == [True, False]


def test_a_pass_rate_at_the_threshold_retires():
    """9 of 10 at 0.9: no rounding error may keep it."""
    for drawn in range(10, 1001, 10):
        sampler = Retiring(Uniform("ab", 1), visits=1)
        sampler.tell(["a", "b"], [drawn * 9 // 10, drawn * 9 // 10 - 1], [drawn] * 2)
        assert sampler.retired.tolist() == [True, False], drawn


def test_a_retired_prompt_that_fails_comes_back():
    sampler = Retiring(Uniform("ab", 1))
    solve(sampler, ["a"])
    for _ in range(300):
        assert sampler.retired.tolist() == [True, False]
        solve(sampler, ["a"], times=1)
    solve(sampler, ["a"], times=1, correct=4)
    assert not sampler.retired.any()
    solve(sampler, ["a"], times=1)
    assert not sampler.retired.any()


@pytest.mark.parametrize("name", WRAPPED)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    sampler, visits = Retiring(WRAPPED[name](), pass_rate=None, max_visits=2), [0] * 20
    for _ in range(10):
        assert not sampler.exhausted
        batch = sampler.ask()
        for key in batch:
            visits[key] += 1
        solve(sampler, batch, times=1)
    assert visits == [2] * 20
    assert sampler.exhausted
    assert sampler.ask() == []


def test_visits_are_counted_on_after_resuming():
    before, after = (Retiring(Uniform("ab", 1), None, 2, max_visits=1) for _ in range(2))
    solve(before, ["a"], times=1)
    after.load_state_dict(before.state_dict())
    assert after.ask() == ["b"]


def test_the_wrapped_sampler_learns():
    sampler, alone = Retiring(CDAS("abc", 1)), CDAS("abc", 1)
    for each in (sampler, alone):
        each.tell(["a", "c"], [3, 8], [8, 8])
    assert sampler.sampler.difficulty.tolist() == alone.difficulty.tolist()
    assert sampler.expected_pass_rates(["c"]) == alone.expected_pass_rates(["c"])
    priors = [each.pass_rate_priors(["c", "b"]).tolist() for each in (sampler, alone)]
    assert priors[0] == priors[1] != [[1, 1], [1, 1]]


def test_what_cannot_be_wrapped_is_refused():
    with pytest.raises(TypeError, match=r"^sampler must be a PromptSampler, got object$"):
        Retiring(object())


def test_a_state_of_another_wrapped_sampler_is_refused():
    state = Retiring(Uniform("ab", 1)).state_dict()
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is Prioritized"):
        Retiring(Prioritized("ab", 1)).load_state_dict(state)
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is Retiring$"):
        Retiring(Uniform("ab", 1)).load_state_dict(Uniform("ab", 1).state_dict())
