"""Recorded responses in place of a model's: their order, what comes beyond them, their lengths."""

import numpy as np

from rollwise import loops
from rollwise.sampling import Draw, draw_seed
from rollwise.simulate.recorded import Recorded, RecordedLengths
from rollwise.simulate.replaying import ReplayEngine


def recorded(rewards, tokens=()):
    return Recorded(np.array(rewards, dtype=float), np.array(tokens, dtype=np.int64))


SIX = {"a": recorded([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]), "b": recorded([9, 8, 7], [9, 8, 7])}


def draw(engine, key, count, step=1):
    """The rewards and lengths of a visit: `count` draws, one at a time."""
    found = []
    for index in range(count):
        draw = Draw(key, index, draw_seed(0, step, key, index))
        response = loops.run(engine.complete(draw, ()))
        found.append((loops.run(engine.reward(draw, response)), len(response.tokens)))
    return found


def test_each_response_comes_once_a_visit_in_an_order_of_the_seed():
    engine = ReplayEngine(SIX, slots=2, seed=3)
    visits = [draw(engine, "a", 6, step) for step in (1, 2)]
    for visit in visits:
        assert sorted(visit) == [(float(i), i + 1) for i in range(6)]
    assert visits[0] != visits[1]
    other = ReplayEngine(SIX, slots=5, seed=3)
    draw(other, "b", 2)  # what is drawn to other prompts does not matter
    assert draw(other, "a", 4) == visits[0][:4]
    assert draw(ReplayEngine(SIX, slots=2, seed=4), "a", 6) != visits[0]


def test_acc_is_replayed_beside_the_reward():
    both = Recorded(np.array([0.2, 0.9]), np.array([3, 4]), np.array([1.0, 0.0]))
    assert both.correct(0.7).tolist() == [True, False]
    engine = ReplayEngine({"a": both}, slots=2)
    rewards = [reward for reward, _ in draw(engine, "a", 2)]
    assert sorted((float(reward), reward.acc) for reward in rewards) == [(0.2, 1.0), (0.9, 0.0)]


def test_beyond_what_is_recorded_responses_come_again():
    found = draw(ReplayEngine(SIX, slots=2), "b", 303)
    assert sorted(found[:3]) == [(7, 7), (8, 8), (9, 9)]
    counts = [found[3:].count(pair) for pair in ((7, 7), (8, 8), (9, 9))]
    assert all(60 < count < 140 for count in counts)  # 100 ± 5 standard deviations


def test_lengths_are_those_of_the_prompt_and_the_kind():
    lengths = RecordedLengths(
        {"a": recorded([1, 0, 1, 0], [10, 20, 30, 40]), "never": recorded([0, 0], [5, 6])}, 35, 0.5
    )

    def all_of(key, correct):
        return {lengths.length(u, correct, key) for u in np.linspace(0.01, 0.99, 50)}

    assert all_of("a", True) == {(10, False), (30, False)}
    assert all_of("a", False) == {(20, False), (35, True)}
    assert all_of("never", True) == {(5, False), (6, False)}
