"""What stopping does to the estimates (docs/sampling.md), enumerated and simulated; its tables.

The enumeration shares the exit rules with the session, nothing else.
"""

from functools import cache
from math import sqrt

import numpy as np
import pytest
import sessions

from rollwise import Balanced, FixedCount, PositiveFocused, RolloutSession, Rounds, Streamed
from rollwise.sampling.stopping import Stopping

PUBLISHED = Rounds(size=8, rounds=4)
SINGLE = Rounds(size=1, rounds=32)


def law(rule, schedule: Rounds, p: float) -> dict[tuple[int, int], float]:
    """Probability of each (n₊, n₋) that a pool can end at."""

    def ends(state):
        drawn = sum(state)
        whole = drawn % schedule.size == 0
        return (whole and rule.satisfied(*state)) or drawn == schedule.max_samples

    return sessions.law(ends, p)


def statistics(positives, negatives) -> dict:
    """What the table shows of a pool: p̂, N, and whether it is mixed."""
    drawn = positives + negatives
    mixed = (positives > 0) & (negatives > 0)
    return {"p_hat": positives / drawn, "drawn": drawn, "mixed": mixed}


def moments(pools) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each statistic under the law."""
    states = np.array(list(pools))
    weights = np.array(list(pools.values()))
    result = {}
    for name, values in statistics(*states.T).items():
        mean = float(weights @ values)
        result[name] = mean, sqrt(max(float(weights @ values**2.0) - mean**2, 0.0))
    return result


# docs/sampling.md, "What stopping does to estimates": E p̂ · E N · P(mixed), M = 8, R = 4.
TABLE = [
    (PositiveFocused(1), 0.02, ".0364 · 25.52 · .4761"),
    (PositiveFocused(1), 0.05, ".0776 · 19.16 · .8063"),
    (PositiveFocused(1), 0.10, ".1297 · 13.56 · .9657"),
    (PositiveFocused(1), 0.25, ".2634 · 8.89 · .9999"),
    (PositiveFocused(1), 0.50, ".5010 · 8.03 · .9961"),
    (PositiveFocused(1), 0.75, ".7500 · 8.00 · .8999"),
    (PositiveFocused(1), 0.90, ".9000 · 8.00 · .5695"),
    (Balanced(2, 2), 0.02, ".0241 · 30.94 · .4761"),
    (Balanced(2, 2), 0.05, ".0663 · 27.31 · .8063"),
    (Balanced(2, 2), 0.10, ".1321 · 20.96 · .9657"),
    (Balanced(2, 2), 0.25, ".2837 · 11.52 · .9999"),
    (Balanced(2, 2), 0.50, ".5000 · 8.57 · 1.0000"),
    (Balanced(2, 2), 0.75, ".7163 · 11.52 · .9999"),
    (Balanced(2, 2), 0.90, ".8679 · 20.96 · .9657"),
]


def printed(value: float, digits: int = 4) -> str:
    """As the table prints numbers: no zero before the point."""
    return f"{value:.{digits}f}".removeprefix("0")


@pytest.mark.parametrize(("rule", "p", "row"), TABLE)
def test_the_table_of_rounds(rule, p, row):
    found = {name: mean for name, (mean, _) in moments(law(rule, PUBLISHED, p)).items()}
    assert row == (
        f"{printed(found['p_hat'])} · {printed(found['drawn'], 2)} · {printed(found['mixed'])}"
    )


def simulate(rule, schedule: Rounds, p: float, prompts: int, seed: int) -> np.ndarray:
    """The (n₊, n₋) of many prompts of the same p through the real session, shape (prompts, 2)."""
    rng = np.random.default_rng(seed)
    session = RolloutSession(range(prompts), exit_rule=rule, schedule=schedule, seed=seed)
    while draws := session.next_draws():
        order = rng.permutation(len(draws))
        for i, correct in zip(order, rng.random(len(draws)) < p, strict=True):
            session.record(draws[i], reward=float(correct))
    return np.array([(pool.positives, pool.negatives) for pool in session.pools.values()])


SIMULATED = [
    (PositiveFocused(1), PUBLISHED, 0.05),
    (PositiveFocused(1), PUBLISHED, 0.75),
    (Balanced(2, 2), PUBLISHED, 0.05),
    (Balanced(2, 2), PUBLISHED, 0.25),
    (Balanced(2, 2), PUBLISHED, 0.90),
    (Balanced(2, 2), SINGLE, 0.10),
    (Balanced(1, 3), Rounds(size=3, rounds=5), 0.60),
    (FixedCount(4), Rounds(size=4, rounds=1), 0.30),
]


@pytest.mark.parametrize(("rule", "schedule", "p"), SIMULATED)
def test_the_session_has_the_enumerated_law(rule, schedule, p):
    """Means over 1,000 prompts, and every end state's share, within 4 standard errors."""
    prompts = 1000
    pools = law(rule, schedule, p)
    counts = simulate(rule, schedule, p, prompts, seed=7)
    observed = statistics(*counts.T)
    for name, (mean, deviation) in moments(pools).items():
        bound = 4 * deviation / sqrt(prompts) + 1e-12
        assert abs(observed[name].mean() - mean) <= bound, name
    for state, weight in pools.items():
        if prompts * weight >= 20:
            share = float((counts == state).all(axis=1).mean())
            assert abs(share - weight) <= 4 * sqrt(weight * (1 - weight) / prompts), state
    assert {tuple(row) for row in counts.tolist()} <= set(pools)


GIVEN_UP = [(Balanced(2, 2), 0.0), (Balanced(2, 2), 0.3), (PositiveFocused(1), 0.4)]


@pytest.mark.parametrize(("rule", "below"), [*GIVEN_UP, (FixedCount(5), 0.0)], ids=repr)
@pytest.mark.parametrize("schedule", [Rounds(4, 3), Streamed(12)], ids=repr)
@pytest.mark.parametrize("lost", [0, 1, 3, 11, 12])
def test_the_tables_are_those_of_a_walk_that_counts_lost_draws(rule, below, schedule, lost):
    """Recursion over (n₊, n₋), draw by draw: `lost` + n₊ + n₋ draws of 12 are gone."""
    budget = 12

    @cache
    def walk(correct: int, incorrect: int) -> tuple[float, float]:
        """The chance that the rule is satisfied, and the draws that are expected until the end."""
        gone = lost + correct + incorrect
        asked = gone > 0 and (gone == budget or schedule.asks(gone))
        if asked and rule.satisfied(correct, incorrect):
            return 1.0, 0.0
        if gone >= budget:
            return 0.0, 0.0
        p = (1 + correct) / (2 + correct + incorrect)
        (chance, need), (other, more) = walk(correct + 1, incorrect), walk(correct, incorrect + 1)
        chance = p * chance + (1 - p) * other
        return chance, 0.0 if asked and chance < below else 1 + p * need + (1 - p) * more

    stopping = Stopping(rule, schedule, budget, lost=lost, give_up_below=below)
    for correct in range(budget - lost + 1):
        for incorrect in range(budget - lost - correct + 1):
            state = correct, incorrect
            found = stopping.chance[state], stopping.expected_need[state]
            assert found == pytest.approx(walk(*state), rel=1e-9)
