"""No prompt is asked for more often than it may be, whoever chooses."""

import pytest

from rollwise.prompts import CDAS, Curriculum, Posterior, Prioritized, Uniform, VisitLimit

WRAPPED = {
    "uniform": lambda: Uniform(range(20), 4),
    "curriculum": lambda: Curriculum(range(20), 4, levels=[5] * 20),
    "prioritized": lambda: Prioritized(range(20), 4),
    "cdas": lambda: CDAS(range(20), 4, warmup_epochs=0),
    "calibrated": lambda: CDAS(range(20), 4, form="calibrated", revisit_share=0.5),
    "posterior": lambda: Posterior(range(20), 4),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_no_prompt_is_asked_more_often_than_its_visits(name):
    sampler, visits = VisitLimit(WRAPPED[name](), 2), [0] * 20
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
    before, after = (VisitLimit(Uniform("ab", 1), 1) for _ in range(2))
    before.tell(["a"], [8], [8])
    after.load_state_dict(before.state_dict())
    assert after.ask() == ["b"]


def test_the_wrapped_sampler_learns():
    sampler, alone = VisitLimit(CDAS("abc", 1), 3), CDAS("abc", 1)
    for each in (sampler, alone):
        each.tell(["a", "c"], [3, 8], [8, 8])
    assert sampler.sampler.difficulty.tolist() == alone.difficulty.tolist()
    assert sampler.expected_pass_rates(["c"]) == alone.expected_pass_rates(["c"])
    priors = [each.pass_rate_priors(["c", "b"]).tolist() for each in (sampler, alone)]
    assert priors[0] == priors[1] != [[1, 1], [1, 1]]


def test_what_cannot_be_wrapped_is_refused():
    with pytest.raises(TypeError, match=r"^sampler must be a PromptSampler, got object$"):
        VisitLimit(object(), 1)


def test_a_state_of_another_wrapped_sampler_is_refused():
    state = VisitLimit(Uniform("ab", 1), 1).state_dict()
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is Prioritized"):
        VisitLimit(Prioritized("ab", 1), 1).load_state_dict(state)
    with pytest.raises(ValueError, match=r"of the sampler Uniform, this one is VisitLimit$"):
        VisitLimit(Uniform("ab", 1), 1).load_state_dict(Uniform("ab", 1).state_dict())
