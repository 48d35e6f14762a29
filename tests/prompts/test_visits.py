"""A limit of visits, in every sampler over a fixed set."""

import pytest

from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Uniform

KINDS = {
    "uniform": Uniform,
    "curriculum": lambda *given, **limit: Curriculum(*given, levels=[5] * 20, **limit),
    "prioritized": Prioritized,
    "cdas": lambda *given, **limit: CDAS(*given, warmup_epochs=0, **limit),
    "calibrated": lambda *given, **limit: CDAS(*given, form="calibrated", **limit),
    "posterior": Posterior,
}


@pytest.mark.parametrize("name", KINDS)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    sampler, visits = KINDS[name](range(20), 4, visits=2), [0] * 20
    for _ in range(10):
        assert not sampler.exhausted
        batch = sampler.ask()
        for key in batch:
            visits[key] += 1
        sampler.tell(batch, [8] * len(batch), [8] * len(batch))
    assert visits == [2] * 20
    assert sampler.exhausted
    assert sampler.ask() == []


def test_visits_are_counted_on_after_resuming():
    before, after = (Uniform("abc", 1, visits=1) for _ in range(2))
    before.tell(["a"], [8], [8])
    after.load_state_dict(before.state_dict())
    assert sorted(after.ask(3)) == ["b", "c"]
    assert after.ask(3, exclude=["b"]) == ["c"]


def test_a_state_without_a_limit_is_refused():
    with pytest.raises(ValueError, match=r"^the state lacks '_?visited'"):
        Uniform("ab", 1, visits=1).load_state_dict(Uniform("ab", 1).state_dict())
