"""What samplers over a fixed set share: other counts, leaving out, states that do not fit."""

from dataclasses import dataclass

import numpy as np
import pytest

from rollwise import CDAS, Curriculum, Posterior, Prioritized, PromptSampler, Uniform
from rollwise.beliefs import BELIEFS, Belief, LatestPassRate
from rollwise.prompts import FixedSetSampler


class FirstOfAll(FixedSetSampler):
    """The least that a sampler of one's own must write."""

    def choose(self, count, exclude):
        allowed = np.ones(len(self.keys), dtype=bool) if exclude is None else ~exclude
        return np.flatnonzero(allowed)[:count]


def test_a_sampler_of_ones_own_needs_one_method():
    sampler = FirstOfAll("abc", 2)
    assert sampler.ask() == ["a", "b"]
    assert sampler.ask(1, ["a"]) == ["b"]
    sampler.tell(["b"], [1], [2])
    assert sampler.metrics() == {"visited": 1 / 3}
    other = FirstOfAll("abc", 2)
    other.load_state_dict(sampler.state_dict())
    assert other.asks == 2


@dataclass(eq=False)
class AllTime(Belief):
    """The least that a belief of one's own must write."""

    def __post_init__(self):
        self.counts = np.zeros((self.total, 2))

    def believe(self, indices):
        correct, drawn = self.counts[indices].T
        return (correct + 1) / (drawn + 2), drawn

    def learn(self, indices, correct, drawn):
        self.counts[indices] += np.stack([correct, drawn], axis=1)


CHOICES = {
    "uniform": Uniform,
    "curriculum": lambda *given, **settings: Curriculum(*given, levels=[5] * 20, **settings),
    "prioritized": Prioritized,
    "cdas": lambda *given, **settings: CDAS(*given, warmup_epochs=0, target=0.4, **settings),
    "posterior": Posterior,
    "own": FirstOfAll,
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("belief", [AllTime, *BELIEFS.values()])
def test_any_belief_goes_with_any_choice(choice, belief):
    """The sampler answers what the belief does, and teaches it."""
    known = belief(20)
    sampler = CHOICES[choice](range(20), 4, belief=known)
    assert sampler.belief is known
    for _ in range(6):
        batch = sampler.ask()
        assert len(set(batch)) == 4
        sampler.tell(batch, [index * 4 // 20 for index in batch], [4] * 4)
    indices = np.arange(3, 15)
    expected = known.mean(indices).astype(float)
    assert np.array_equal(sampler.expected_pass_rates(indices), expected, equal_nan=True)
    assert sampler.pass_rate_priors(indices).tolist() == known.priors(indices).tolist()
    assert known.metrics().items() <= sampler.metrics().items()


def test_the_choice_follows_the_belief_that_it_is_given():
    """Expected are 1/6 to 5/6 in steps of 1/12; half just above 0.4 come, half just below."""
    belief = AllTime(9)
    belief.learn(np.arange(9), np.arange(9) / 2, np.full(9, 4))
    harder, easier = [1, 2], [3, 4]
    assert CDAS(range(9), 4, belief=belief, warmup_epochs=0, target=0.4).ask() == harder + easier


def test_a_belief_of_other_prompts_is_refused():
    message = r"^belief must cover as many prompts as there are \(3\), got one of 4$"
    with pytest.raises(ValueError, match=message):
        Uniform("abc", 1, belief=AllTime(4))


HARD, EASY = (Curriculum("abc", 1, levels=[4, level, 1]) for level in (4, 1))
LIMITED = Uniform("abc", 1, visits=1)
LATEST, CALIBRATED = Uniform("abc", 1, belief=LatestPassRate(3)), CDAS("abc", 1, form="calibrated")


@pytest.mark.parametrize(
    ("sampler", "state", "message"),
    [
        (Uniform("abc", 1), LATEST.state_dict(), "the belief LatestPassRate, this one is Decayed"),
        (
            CDAS("abc", 1),
            LATEST.state_dict(),
            "^the state was saved by the sampler Uniform, this one is",
        ),
        (CDAS("abc", 1), {"asks": 3}, "^the state lacks 'told'; it has asks$"),
        (CALIBRATED, CDAS("abc", 1).state_dict(), "with form 'paper', this one has 'calibrated'"),
        (EASY, HARD.state_dict(), r"to other prompts: 'hard_walk\.order'"),
        (LIMITED, Uniform("abc", 1).state_dict(), "^the state lacks '_?visited'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(sampler, state, message):
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(state)


def test_a_belief_without_a_state_starts_anew_and_says_so(caplog):
    sampler, other = (Uniform("abc", 1, belief=AllTime(3)) for _ in range(2))
    sampler.ask()
    other.load_state_dict(sampler.state_dict())
    assert other.asks == 1
    assert "AllTime has no saved state: it starts over" in caplog.text


def test_a_sampler_that_keeps_no_state_refuses_one():
    class InOrder(PromptSampler):
        def ask(self, count=None, exclude=()):
            return ["a"]

        def tell(self, keys, correct, drawn): ...

    assert InOrder().state_dict() == {}
    with pytest.raises(ValueError, match=r"^InOrder has no load_state_dict, .* holds told$"):
        InOrder().load_state_dict({"told": 3})
