"""Exit rules, and the rollout session: the loop, draw order, failures, what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwise import Balanced, Draw, FixedCount, PositiveFocused, RolloutSession, Rounds, Streamed
from rollwise.sampling import draw_seed

RULE = Balanced(2, 2)


@pytest.mark.parametrize(
    ("rule", "definition"),
    [
        (PositiveFocused(), lambda n, m: n >= 1),
        (PositiveFocused(positives=3), lambda n, m: n >= 3),
        (Balanced(), lambda n, m: n >= 2 and m >= 2),
        (Balanced(positives=1, negatives=4), lambda n, m: n >= 1 and m >= 4),
        (FixedCount(), lambda n, m: n + m >= 4),
        (FixedCount(samples=1), lambda n, m: n + m >= 1),
    ],
)
def test_integers_give_a_bool_and_arrays_an_array_of_their_shape(rule, definition):
    """The definitions of arXiv 2510.04996, spelt out rule by rule."""
    answers = rule.satisfied(*np.indices((6, 6)))
    assert answers.dtype == np.bool_
    pairs = [[(n, m) for m in range(6)] for n in range(6)]
    assert answers.tolist() == [[definition(*pair) for pair in row] for row in pairs]
    assert all(rule.satisfied(*pair) is definition(*pair) for row in pairs for pair in row)


ARGUMENTS = [
    *((PositiveFocused, "positives"), (Balanced, "positives"), (Balanced, "negatives")),
    *((FixedCount, "samples"), (Rounds, "size"), (Rounds, "rounds")),
]


@pytest.mark.parametrize(("kind", "argument"), ARGUMENTS)
@pytest.mark.parametrize("value", [0, -3, 2.0, "2", None, True])
def test_counts_must_be_integers_of_at_least_1(kind, argument, value):
    error, must = (ValueError, "at least 1") if type(value) is int else (TypeError, "an integer")
    with pytest.raises(error, match=f"^{argument} must be {must}, got {value!r}$"):
        kind(**{argument: value})


def test_the_rule_is_asked_at_the_end_of_each_round():
    """Round by round, against counts by hand: 4 draws a round, 3 rounds, two of each wanted."""
    scripts = {
        "at once": ("1100", "satisfied"),
        "overshoots": ("1110" + "0001", "satisfied"),
        "in the last": ("0000" + "0000" + "0011", "satisfied"),
        "one short": ("0000" + "0100" + "0000", "exhausted"),
        "never": ("1111" + "1111" + "1111", "exhausted"),
    }
    session = RolloutSession(scripts, RULE, Rounds(size=4, rounds=3))
    per_round = []
    while draws := session.next_draws():
        per_round.append(len(draws))
        for draw in draws:
            session.record(draw, float(scripts[draw.key][0][draw.index]))
    assert per_round == [5 * 4, 4 * 4, 3 * 4]
    for key, (script, reason) in scripts.items():
        assert session.pools[key].rewards.tolist() == [float(digit) for digit in script], key
        assert session.pools[key].exit_reason == reason, key


@given(order=st.permutations(range(8)))
def test_an_early_response_waits_for_those_before_it(order):
    session = RolloutSession(["x"], RULE, Rounds(8, 1))
    draws, arrived = session.next_draws(), set()
    for index in order:
        session.record(draws[index], reward=index / 10, response=index)
        arrived.add(index)
        prefix = next(i for i in range(9) if i not in arrived)
        assert session.pools["x"].responses == list(range(prefix))
        assert session.pools["x"].rewards.tolist() == [i / 10 for i in range(prefix)]


def test_a_failure_is_drawn_again_with_the_same_seed_until_it_is_lost():
    """A reward of 0.6 is correct here, above a threshold of the session's own."""
    session = RolloutSession(
        ["x"], PositiveFocused(1), Rounds(2, 1), positive_threshold=0.5, max_attempts=3
    )
    bad, good = session.next_draws()
    session.record(good, 0.6, "late")
    for attempt in (1, 2):
        session.record_failure(bad)
        with pytest.raises(ValueError, match="is not in flight"):
            session.record_failure(bad)
        assert (session.failures, session.lost, session.done) == (attempt, 0, False)
        assert len(session.pools["x"]) == 0
        assert session.next_draws() == [bad]
        assert session.next_draws() == []
    session.record_failure(bad)
    assert (session.failures, session.lost) == (3, 1)
    assert session.next_draws() == []
    pool = session.pools["x"]
    assert (pool.rewards.tolist(), pool.responses) == ([0.6], ["late"])
    assert pool.exit_reason == "satisfied"


def test_giving_up_in_rounds_is_asked_at_the_end_of_the_round_whatever_was_lost():
    """Sixteen incorrect responses are given up; so are fifteen, and one that was lost."""
    session = RolloutSession(["a"], Balanced(2, 2), Rounds(8, 4), max_attempts=1, give_up_below=0.3)
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


def test_a_prompt_with_little_budget_left_is_expected_to_need_little():
    """Two of the 12 draws of a are left: with one of them in flight it is further than b is."""
    session = RolloutSession(["a"], Balanced(3, 3), Streamed(12, 0.0), max_attempts=1)
    for draw in session.next_draws(10):
        session.record_failure(draw)
    session.add(["b"])
    assert [draw.key for draw in session.next_draws(5)] == ["b", "a", "b", "b", "b"]


NOT_FINITE = r"^the reward of Draw\(key='x', index=0.*must be finite"


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        *((x, ValueError, NOT_FINITE) for x in (float("nan"), -float("inf"))),
        *((x, TypeError, None) for x in (None, "1.0")),
    ],
)
def test_a_reward_must_be_a_finite_number_and_a_refused_one_changes_nothing(reward, error, message):
    session = RolloutSession(["x"], RULE, Rounds(1, 1))
    (draw,) = session.next_draws()
    with pytest.raises(error, match=message):
        session.record(draw, reward)
    session.record(draw, 1.0)
    for report in (lambda: session.record(draw, 1.0), lambda: session.record_failure(draw)):
        with pytest.raises(ValueError, match="is not in flight"):
            report()
    assert (session.failures, session.pools["x"].rewards.tolist()) == (0, [1.0])


FORGED = {
    "another prompt": Draw("y", 0, draw_seed(0, 0, "x", 0)),
    "not yet": Draw("x", 5, draw_seed(0, 0, "x", 5)),
    "never": Draw("x", -1, draw_seed(0, 0, "x", -1)),
    "another session": Draw("x", 0, draw_seed(0, 1, "x", 0)),
}


@pytest.mark.parametrize("draw", FORGED.values(), ids=FORGED)
def test_a_draw_that_is_not_in_flight_is_refused(draw):
    """Draws 0 to 4 are in flight, 5 to 7 planned and still waiting for a slot."""
    session = RolloutSession(["x"], RULE, seed=0, step=0)
    session.next_draws(5)
    for report in (lambda: session.record(draw, 1.0), lambda: session.record_failure(draw)):
        with pytest.raises(ValueError, match="is not in flight"):
            report()
    assert (session.failures, len(session.pools["x"])) == (0, 0)


@pytest.mark.parametrize(
    ("keys", "arguments", "error", "message"),
    [
        ([], {}, ValueError, r"^keys must name at least one prompt, got none$"),
        (["x", "y", "x"], {}, ValueError, "each prompt once, got key 'x' twice"),
        ([np.int64(3), 3], {}, ValueError, "each prompt once, got key 3 twice"),
        *(("a", {"exit_rule": no}, TypeError, "ExitRule") for no in (None, "balanced", Rounds())),
        ("x", {"max_attempts": 0}, ValueError, "^max_attempts must be at least 1, got 0$"),
        ("x", {"give_up_below": 1.5}, ValueError, r"^give_up_below must lie in \[0, 1\]"),
        *(
            ("x", {name: value}, error, f"^{name} must be .*, got {value}$")
            for name in ("seed", "step")
            for value, error in ((-1, ValueError), (None, TypeError))
        ),
        ("abc", {"budgets": [1, 2]}, ValueError, "budgets must be 3 integers"),
        ("abc", {"budgets": [1.0, 2.0, 3.0]}, ValueError, "budgets must be 3 integers"),
        ("abc", {"budgets": [1, 2, 33]}, ValueError, "the schedule's 32 draws, got 1 to 33"),
        ("abc", {"budgets": [0, 2, 3]}, ValueError, "the schedule's 32 draws, got 0 to 3"),
        ("abc", {"priors": [1, 1, 1]}, ValueError, r"priors must have shape \(3, 2\)"),
        ("abc", {"priors": [[1, 1], [1, 0], [1, 1]]}, ValueError, "finite and above 0"),
        ("abc", {"priors": [[1, 1], [1, np.nan], [1, 1]]}, ValueError, "finite and above 0"),
    ],
)
def test_what_does_not_fit_is_refused(keys, arguments, error, message):
    with pytest.raises(error, match=message):
        RolloutSession(keys, **{"exit_rule": RULE, **arguments})


@pytest.mark.parametrize("schedule", [Rounds(4, 2), Streamed(8)], ids=str)
def test_ending_all_keeps_what_is_in_the_pools(schedule):
    session = RolloutSession("ab", Balanced(4, 4), schedule)
    draws = session.next_draws(8)
    first = [draw for draw in draws if (draw.key, draw.index) in {("a", 0), ("a", 2)}]
    for draw in first:
        session.record(draw, 1.0)
    failed = next(draw for draw in draws if (draw.key, draw.index) == ("b", 0))
    session.record_failure(failed)
    given_up = session.end_all()
    assert {*given_up, *first, failed} == set(draws)
    assert session.done
    assert session.next_draws(8) == []
    assert {key: len(pool) for key, pool in session.pools.items()} == {"a": 1, "b": 0}
    assert {pool.exit_reason for pool in session.pools.values()} == {"exhausted"}
    assert session.surplus == len(draws) - 1
    with pytest.raises(ValueError, match="is not in flight"):
        session.record(given_up[0], 1.0)
    session.add(["c"])
    assert {draw.key for draw in session.next_draws(4)} == {"c"}


@pytest.mark.parametrize("keys", [["a"], ["b", "b"], ["b", None], []])
def test_a_refused_addition_adds_nothing(keys):
    session = RolloutSession(["a"], FixedCount(2))
    with pytest.raises((ValueError, TypeError)):
        session.add(keys)
    assert list(session.pools) == ["a"]
