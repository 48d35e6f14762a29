"""The hidden Markov model: its filter, the transitions it learns, and how it is kept."""

import numpy as np
import pytest

from rollwise.beliefs.hidden_states import HiddenStates


def test_a_first_visit_worked_out_by_hand():
    """Two states of pass rates ¼ and ¾, equally likely: one correct response makes them 1 : 3. The
    prior lets 8 of 9 stay, so the next visit expects (11/36, 25/36)·(¼, ¾) = 43/72."""
    belief = HiddenStates(2, states=2)
    assert belief.pass_rates.tolist() == [0.25, 0.75]
    assert belief.believe(np.array([0]))[0] == pytest.approx([0.5])
    belief.learn(np.array([0]), [1], [1])
    assert belief.believe(np.array([0]))[0] == pytest.approx([43 / 72])


def test_a_prompt_not_visited_expects_what_first_visits_showed():
    """The first state counts 1 + ¼ and 1 + ¾ of 3: (5·¼ + 7·¾)/12 = 13/24."""
    belief = HiddenStates(2, states=2)
    belief.learn(np.array([0]), [1], [1])
    assert belief.believe(np.array([1]))[0] == pytest.approx([13 / 24])


def test_expected_transitions_are_those_of_enumeration():
    """ξ_ij = P(i before, j now | all observations), by summing over the four paths."""
    belief = HiddenStates(1, states=2, memory=1.0)
    before = belief.transition
    belief.learn(np.array([0]), [1], [2])
    belief.learn(np.array([0]), [3], [3])
    rates = belief.pass_rates
    likelihood = [rates**1 * (1 - rates), rates**3]
    paths = (0.5 * likelihood[0])[:, None] * before * likelihood[1]
    counted = np.array([[8, 1], [1, 8]]) + paths / paths.sum()
    assert belief.transition == pytest.approx(counted / counted.sum(axis=1, keepdims=True))


def test_it_learns_how_often_prompts_are_solved_between_visits():
    """Of unsolved prompts one in five is solved for good at each visit."""
    rng, total = np.random.default_rng(2), 300
    belief, solved = HiddenStates(total, states=3, memory=1.0), np.zeros(total, dtype=bool)
    for _ in range(12):
        belief.learn(np.arange(total), np.where(solved, 8, 0), np.full(total, 8))
        solved |= rng.random(total) < 0.2
    assert belief.transition[0, 2] == pytest.approx(0.2, abs=0.03)
    assert belief.transition[2, 2] > 0.97


def test_older_transitions_count_less():
    """What moved once and then stays is believed to stay, the sooner the shorter the memory."""
    stays = {}
    for memory in (0.5, 1.0):
        belief = HiddenStates(50, states=2, memory=memory)
        for step in range(20):
            correct = 8 * (step % 2) if step < 10 else 8
            belief.learn(np.arange(50), np.full(50, correct), np.full(50, 8))
        stays[memory] = belief.metrics()["belief_stays"]
    assert stays[0.5] > stays[1.0] + 0.2


def test_more_responses_make_a_stronger_belief():
    belief = HiddenStates(3)
    belief.learn(np.arange(2), [1, 8], [2, 16])
    weak, strong, none = belief.believe(np.arange(3))[1][[0, 1, 2]]
    assert none < weak < strong


def test_many_responses_do_not_underflow():
    belief = HiddenStates(1)
    belief.learn(np.array([0]), [5_000], [10_000])
    assert belief.believe(np.array([0]))[0] == pytest.approx([0.5], abs=1e-6)


def test_a_state_resumes_exactly_and_refuses_others():
    rng, whole, resumed = np.random.default_rng(0), HiddenStates(30), HiddenStates(30)
    for step in range(6):
        if step == 3:
            resumed.load_state_dict(whole.state_dict())
        places = rng.choice(30, 10, replace=False)
        correct = rng.integers(0, 5, 10)
        whole.learn(places, correct, np.full(10, 4))
        if step >= 3:
            resumed.learn(places, correct, np.full(10, 4))
    assert np.array_equal(whole.believe(np.arange(30)), resumed.believe(np.arange(30)))
    with pytest.raises(ValueError, match="has 5 hidden states, this belief has 3"):
        HiddenStates(30, states=3).load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="'weights_0'"):
        HiddenStates(31).load_state_dict(whole.state_dict())


def test_four_bytes_a_state_and_prompt():
    state = HiddenStates(1000, states=5).state_dict()
    assert sum(value.nbytes for name, value in state.items() if "weights" in name) == 20_000


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"states": 1}, "states must be at least 2"), ({"memory": 1.1}, "memory must lie between")],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        HiddenStates(3, **setting)
