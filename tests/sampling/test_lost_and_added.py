"""Lost draws use up a prompt's budget; prompts added to a batch get a draw at least."""

from functools import cache

import pytest

from rollwise.sampling import (
    Balanced,
    FixedCount,
    GiveUp,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Streamed,
)
from rollwise.sampling.stopping import Stopping

RULES = [Balanced(2, 2), GiveUp(Balanced(2, 2), 0.3), GiveUp(PositiveFocused(1), 0.4)]


def test_giving_up_in_rounds_is_asked_at_the_end_of_the_round_whatever_was_lost():
    """Sixteen incorrect responses are given up; so are fifteen, and one that was lost."""
    session = RolloutSession(["a"], GiveUp(Balanced(2, 2), 0.3), Rounds(8, 4), max_attempts=1)
    handed_out = 0
    while draws := session.next_draws():
        handed_out += len(draws)
        for draw in draws:
            if draw.index == 0:
                session.record_failure(draw)
            else:
                session.record(draw, 0.0)
    pool = session.pools["a"]
    assert (handed_out, len(pool), pool.exit_reason) == (16, 15, "futile")


@pytest.mark.parametrize("rule", [*RULES, FixedCount(5)], ids=repr)
@pytest.mark.parametrize("schedule", [Rounds(4, 3), Streamed(12)], ids=repr)
@pytest.mark.parametrize("lost", [0, 1, 3, 11, 12])
def test_the_tables_are_those_of_a_walk_that_counts_lost_draws(rule, schedule, lost):
    """Recursion over (n₊, n₋), draw by draw: `lost` + n₊ + n₋ draws of 12 are gone."""
    budget = 12

    @cache
    def chance(correct: int, incorrect: int) -> float:
        gone = lost + correct + incorrect
        asked = gone > 0 and (gone == budget or schedule.asks(gone))
        if asked and rule.satisfied(correct, incorrect):
            return 1.0
        if gone >= budget:
            return 0.0
        p = (1 + correct) / (2 + correct + incorrect)
        return p * chance(correct + 1, incorrect) + (1 - p) * chance(correct, incorrect + 1)

    @cache
    def need(correct: int, incorrect: int) -> float:
        gone = lost + correct + incorrect
        asked = gone > 0 and (gone == budget or schedule.asks(gone))
        below = getattr(rule, "below", 0.0)
        over = rule.satisfied(correct, incorrect) or chance(correct, incorrect) < below
        if gone >= budget or (asked and over):
            return 0.0
        p = (1 + correct) / (2 + correct + incorrect)
        return 1 + p * need(correct + 1, incorrect) + (1 - p) * need(correct, incorrect + 1)

    stopping = Stopping(rule, schedule, budget, lost=lost)
    for correct in range(budget - lost + 1):
        for incorrect in range(budget - lost - correct + 1):
            state = correct, incorrect
            assert stopping.chance[state] == pytest.approx(chance(*state), rel=1e-9)
            assert stopping.expected_need[state] == pytest.approx(need(*state), rel=1e-9)


def test_a_prompt_with_little_budget_left_is_expected_to_need_little():
    """Two of the 12 draws of a are left: with one of them in flight it is further than b is."""
    session = RolloutSession(["a"], Balanced(3, 3), Streamed(12, 0.0), max_attempts=1)
    for draw in session.next_draws(10):
        session.record_failure(draw)
    session.add(["b"])
    assert [draw.key for draw in session.next_draws(5)] == ["b", "a", "b", "b", "b"]


@pytest.mark.parametrize("keys", [["a"], ["b", "b"], ["b", None], []])
def test_a_refused_addition_adds_nothing(keys):
    session = RolloutSession(["a"], FixedCount(2))
    with pytest.raises((ValueError, TypeError)):
        session.add(keys)
    assert list(session.pools) == ["a"]
