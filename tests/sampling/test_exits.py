"""Exit rules of counts and of rewards: what they answer and refuse, and how they are asked."""

from dataclasses import dataclass

import numpy as np
import pytest
from sessions import GuessedSpread, Spread

from rollwise.sampling import (
    Balanced,
    ExitRule,
    FixedCount,
    GiveUp,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Streamed,
    advantages,
    as_exit_rule,
    select_group,
)
from rollwise.sampling.schedules import check_reachable
from rollwise.sampling.stopping import Stopping

RULES = [
    PositiveFocused(),
    PositiveFocused(positives=3),
    Balanced(),
    Balanced(positives=1, negatives=4),
    FixedCount(),
    FixedCount(samples=1),
]


def expected(rule: ExitRule, positives: int, negatives: int) -> bool:
    """The definitions of arXiv 2510.04996, spelt out rule by rule."""
    match rule:
        case PositiveFocused(wanted):
            return positives >= wanted
        case Balanced(wanted, unwanted):
            return positives >= wanted and negatives >= unwanted
        case FixedCount(samples):
            return positives + negatives >= samples
    raise AssertionError(rule)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("shape", [(36,), (6, 6), (2, 3, 6)])
def test_integers_give_a_bool_and_arrays_an_array_of_their_shape(rule, shape):
    positives, negatives = (counts.reshape(shape) for counts in np.indices((6, 6)))
    answers = rule.satisfied(positives, negatives)
    assert answers.dtype == np.bool_
    assert answers.shape == shape
    pairs = [(int(a), int(b)) for a, b in zip(positives.flat, negatives.flat, strict=True)]
    assert answers.ravel().tolist() == [expected(rule, *pair) for pair in pairs]
    assert all(rule.satisfied(*pair) is expected(rule, *pair) for pair in pairs)


def test_the_contracts_example():
    assert Balanced(positives=2, negatives=2).satisfied(positives=3, negatives=1) is False


def test_defaults_are_those_of_a_group_of_four():
    """k = 4: one correct; k/2 of both; k whatever they are; M = 8 and R = 4."""
    assert PositiveFocused() == PositiveFocused(positives=1)
    assert Balanced() == Balanced(positives=2, negatives=2)
    assert FixedCount() == FixedCount(samples=4)
    assert Rounds() == Rounds(size=8, rounds=4)
    assert Rounds().max_samples == 32


ARGUMENTS = [
    (PositiveFocused, "positives"),
    (Balanced, "positives"),
    (Balanced, "negatives"),
    (FixedCount, "samples"),
    (Rounds, "size"),
    (Rounds, "rounds"),
]


@pytest.mark.parametrize(("kind", "argument"), ARGUMENTS)
@pytest.mark.parametrize("value", [0, -3, 2.0, "2", None, True])
def test_counts_must_be_integers_of_at_least_1(kind, argument, value):
    integer = type(value) is int
    must = "must be at least 1, got" if integer else "must be an integer, got"
    with pytest.raises(
        ValueError if integer else TypeError, match=f"^{argument} {must} {value!r}$"
    ):
        kind(**{argument: value})


def test_defaults_of_a_rule_that_only_says_when_it_is_satisfied():
    class Anything:
        def satisfied(self, positives, negatives):
            return positives + negatives > 0

    rule = as_exit_rule(Anything())
    assert rule.satisfied(1, 0) is True
    assert rule.gives_up(np.array([0.0, 1.0])).tolist() == [False, False]
    assert not rule.gives_up(0.0)
    assert not rule.uses_priors
    assert not rule.looks_at_rewards
    with pytest.raises(NotImplementedError, match="looks at counts"):
        rule.satisfied_by(np.ones(1))


@pytest.mark.parametrize("wrong", [None, "balanced", Rounds()])
def test_what_cannot_be_satisfied_is_no_rule(wrong):
    with pytest.raises(TypeError, match=r"inherits from rollwise\.ExitRule"):
        RolloutSession("a", wrong)


def test_giving_up_is_a_verb_of_the_rule():
    """Two rules that give up: whichever does first."""
    rule = GiveUp(GiveUp(Balanced(), 0.2), 0.1)
    assert rule.gives_up(np.array([0.05, 0.15, 0.2])).tolist() == [True, True, False]
    assert rule.uses_priors
    assert not Balanced().uses_priors


def play(session: RolloutSession, rewards: list[float], slots: int | None = None) -> int:
    """Answer in draw order with these rewards; returns how many draws were handed out."""
    handed_out = 0
    while draws := session.next_draws(slots):
        handed_out += len(draws)
        for draw in draws:
            session.record(draw, rewards[draw.index])
            if session.done:
                break
    return handed_out


def test_a_rule_is_asked_on_the_rewards_after_every_draw_of_a_stream():
    session = RolloutSession(["a"], Spread(0.5), Streamed(8))
    assert play(session, [0.3, 0.4, 0.1, 0.6, 0.9], slots=4) == 4
    pool = session.pools["a"]
    assert (pool.rewards.tolist(), pool.exit_reason) == ([0.3, 0.4, 0.1, 0.6], "satisfied")


def test_a_rule_is_asked_on_the_rewards_at_the_end_of_a_round():
    session = RolloutSession(["a"], Spread(0.5), Rounds(3, 3))
    play(session, [0.3, 0.4, 0.1, 0.6, 0.5, 0.5])
    assert (len(session.pools["a"]), session.pools["a"].exit_reason) == (6, "satisfied")


@pytest.mark.parametrize("lost", [1, 2])
def test_an_empty_pool_is_not_asked_about(lost):
    session = RolloutSession(["a"], Spread(0.5), Streamed(lost), max_attempts=1)
    for _ in range(lost):
        session.record_failure(session.next_draws(1)[0])
    assert (session.done, session.pools["a"].exit_reason) == (True, "exhausted")


def test_without_a_guess_one_draw_of_a_prompt_is_in_flight():
    """Any response may satisfy the rule, so that only the next is certain to be needed."""
    session = RolloutSession(range(3), Spread(), Streamed(8, speculation=0.1))
    draws = session.next_draws(30)
    assert sorted(draw.key for draw in draws) == [0, 1, 2]
    session.record(draws[1], 0.0)
    assert [draw.key for draw in session.next_draws(30)] == [draws[1].key]


def test_with_a_guess_draws_go_ahead_and_more_where_the_guess_was_wrong():
    """One reward on either side of 0.7 is the guess; they need not differ by 0.5."""
    session = RolloutSession(["a"], GuessedSpread(0.5), Streamed(8, speculation=0.4))
    draws = session.next_draws(30)
    assert len(draws) > 1
    session.record(draws[0], 0.6)
    session.record(draws[1], 0.8)
    assert not session.done
    in_flight = draws[2:]
    while not session.done:
        in_flight += session.next_draws(1)
        session.record(in_flight.pop(0), 0.8)
    assert len(session.pools["a"]) == 8


def test_tables_expect_a_draw_more_wherever_rewards_decide():
    stopping = Stopping(GuessedSpread(), Streamed(4), budget=4)
    drawn = np.add.outer(np.arange(5), np.arange(5))
    assert np.all(stopping.certain_need[drawn < 4] >= 1)
    assert np.all(stopping.expected_need[drawn < 4] >= 1)
    assert np.all(stopping.worthwhile(1.0)[drawn < 4] >= 1)
    assert np.all(stopping.certain_need[drawn >= 4] == 0)


def test_giving_up_goes_by_the_guess_and_asks_the_rewards():
    """After n incorrect responses of 16 the chance of a correct one is (16 − n)/(17)."""
    rule = GiveUp(GuessedSpread(0.5), below=0.3)
    session = RolloutSession(["a", "b"], rule, Streamed(16))
    rewards = {"a": [0.0] * 16, "b": [0.0, 0.5]}
    while draws := session.next_draws(1):
        session.record(draws[0], rewards[draws[0].key][draws[0].index])
    assert [pool.exit_reason for pool in session.pools.values()] == ["futile", "satisfied"]
    assert len(session.pools["b"]) == 2
    n = len(session.pools["a"])
    assert (16 - n) / 17 < 0.3 <= (16 - n + 1) / 17


def test_unbiased_estimates_are_refused():
    session = RolloutSession(["a"], GiveUp(Spread(0.5), 0.0), Rounds(2, 2))
    play(session, [0.0, 1.0])
    pool = session.pools["a"]
    with pytest.raises(ValueError, match=r"needs an exit rule that looks at counts.*Spread"):
        advantages(pool, select_group(pool, 2), "linear", estimates="unbiased")
    assert advantages(pool, select_group(pool, 2), "linear").tolist() == [-0.5, 0.5]


def test_what_cannot_be_told_by_counts_is_not_refused_as_unreachable():
    @dataclass(frozen=True)
    class Never(Spread):
        def satisfied(self, positives, negatives):
            return positives < 0

    check_reachable(Never(), Streamed(4))
