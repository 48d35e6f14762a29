"""What stopping does to estimates and objectives: every end of a pool enumerated, or simulated.

A group's expected gradient is a multiple of ∇p, its *weight*: since ∇p = p·E[∇log π | correct] =
−(1 − p)·E[∇log π | incorrect], the mean of A·∇log π over the members is in expectation
(a₊/p − a₋/(1 − p))·∇p, where a₊ and a₋ are the sums of the advantages over either side, by k.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import sessions

from rollwise import (
    Balanced,
    FixedCount,
    Pool,
    PositiveFocused,
    RolloutSession,
    Rounds,
    Streamed,
    advantages,
    select_group,
)
from rollwise.sampling.stopping import Stopping

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED = Rounds(size=8, rounds=4)


def printed(value: float, digits: int) -> str:
    """As the tables print numbers: no zero before the point."""
    return f"{value:.{digits}f}".removeprefix("0")


def row(p: float, cells: list[str]) -> str:
    return "| " + " | ".join([printed(p, 2), *cells]) + " |"


def law_in_rounds(rule, schedule: Rounds, p: float) -> dict[tuple[int, int], float]:
    """Probability of each (n₊, n₋) that a pool can end at; only the rule is the session's."""

    def ends(state):
        whole = sum(state) % schedule.size == 0
        return (whole and rule.satisfied(*state)) or sum(state) == schedule.max_samples

    return sessions.law(ends, p)


def statistics(positives, negatives) -> dict:
    """What the table shows of a pool: p̂, N, and whether it is mixed."""
    drawn = positives + negatives
    return {"p̂": positives / drawn, "N": drawn, "mixed": (positives > 0) & (negatives > 0)}


def moments(pools) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each statistic under the law."""
    weights, result = np.array(list(pools.values())), {}
    for name, values in statistics(*np.array(list(pools)).T).items():
        mean = float(weights @ values)
        result[name] = mean, sqrt(max(float(weights @ values**2.0) - mean**2, 0.0))
    return result


def test_the_table_of_rounds():
    """docs/sampling.md: E p̂ · E N · P(mixed), by enumeration."""
    document = (DOCS / "sampling.md").read_text(encoding="utf-8")
    for p in (0.02, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90):
        cells = []
        for rule in (PositiveFocused(1), Balanced(2, 2)):
            found = moments(law_in_rounds(rule, PUBLISHED, p)).values()
            means = [mean for mean, _ in found]
            cells.append(" · ".join(map(printed, means, (4, 2, 4))))
        assert f"\n{row(p, cells)}\n" in document


SIMULATED = [
    (PositiveFocused(1), PUBLISHED, 0.05),
    (Balanced(2, 2), PUBLISHED, 0.25),
    (Balanced(2, 2), PUBLISHED, 0.90),
    (Balanced(2, 2), Rounds(size=1, rounds=32), 0.10),
    (Balanced(1, 3), Rounds(size=3, rounds=5), 0.60),
    (FixedCount(4), Rounds(size=4, rounds=1), 0.30),
]


@pytest.mark.parametrize(("rule", "schedule", "p"), SIMULATED)
def test_the_session_has_the_enumerated_law(rule, schedule, p):
    """Means over 1,000 prompts, and every end state's share, within 4 standard errors."""
    prompts, rng = 1000, np.random.default_rng(7)
    session = RolloutSession(range(prompts), rule, schedule, seed=7)
    while draws := session.next_draws():
        order = rng.permutation(len(draws))
        for i, correct in zip(order, rng.random(len(draws)) < p, strict=True):
            session.record(draws[i], reward=float(correct))
    counts = np.array([(pool.positives, pool.negatives) for pool in session.pools.values()])
    pools, observed = law_in_rounds(rule, schedule, p), statistics(*counts.T)
    for name, (mean, deviation) in moments(pools).items():
        assert abs(observed[name].mean() - mean) <= 4 * deviation / sqrt(prompts) + 1e-12, name
    for state, weight in pools.items():
        if prompts * weight >= 20:
            share = float((counts == state).all(axis=1).mean())
            assert abs(share - weight) <= 4 * sqrt(weight * (1 - weight) / prompts), state
    assert {tuple(state) for state in counts.tolist()} <= set(pools)


GIVEN_UP = [(Balanced(2, 2), 0.0), (Balanced(2, 2), 0.3), (PositiveFocused(1), 0.4)]


@pytest.mark.parametrize(("rule", "below"), [*GIVEN_UP, (FixedCount(5), 0.0)], ids=repr)
@pytest.mark.parametrize("schedule", [Rounds(4, 3), Streamed(12)], ids=repr)
@pytest.mark.parametrize("lost", [0, 1, 3, 11, 12])
@pytest.mark.parametrize("prior", [(1.0, 1.0), (1.0, 31.0)])
def test_the_tables_are_those_of_a_walk_that_counts_lost_draws(rule, below, schedule, lost, prior):
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
        p = (prior[0] + correct) / (sum(prior) + correct + incorrect)
        (chance, need), (other, more) = walk(correct + 1, incorrect), walk(correct, incorrect + 1)
        chance = p * chance + (1 - p) * other
        return chance, 0.0 if asked and chance < below else 1 + p * need + (1 - p) * more

    stopping = Stopping(rule, schedule, budget, prior, lost, give_up_below=below)
    for correct in range(budget - lost + 1):
        for incorrect in range(budget - lost - correct + 1):
            state = correct, incorrect
            found = stopping.chance[state], stopping.expected_draws[state]
            assert found == pytest.approx(walk(*state), rel=1e-9)


BUDGET = 32
PASS_RATES = [0.01, 0.05, 0.3, 0.5, 0.75, 0.98]


@dataclass(frozen=True)
class AfterEachDraw:
    """Asked whenever a draw is in, as where draws are streamed."""

    def asks(self, processed: int) -> bool:
        return processed > 0


RULES = [PositiveFocused(1), Balanced(2, 2), Balanced(3, 1)]
SCHEDULES = [Rounds(1, 32), Rounds(4, 8), Rounds(8, 4), AfterEachDraw()]
STOPPINGS = [
    *(Stopping(rule, schedule, BUDGET) for rule in RULES for schedule in SCHEDULES),
    *(Stopping(Balanced(2, 2), schedule, BUDGET, give_up_below=0.3) for schedule in SCHEDULES),
]

ROUNDS = Stopping(Balanced(2, 2), PUBLISHED, BUDGET)
FOCUSED = Stopping(PositiveFocused(1), PUBLISHED, BUDGET)


@cache
def law(stopping: Stopping, p: float, cut: int = BUDGET) -> dict[tuple[int, int], float]:
    """Probability of each (n₊, n₋) that sampling ends at, or is cut short at after `cut` draws."""
    return sessions.law(lambda state: stopping.stops[state] or sum(state) == cut, p)


@cache
def sides(stopping, state, objective, estimates="plug_in", strategy="balanced", size=4):
    """a₊ and a₋ of a pool that holds `state`."""
    pool = Pool("x", [1] * state[0] + [0] * state[1])
    pool.stopping = stopping
    group = select_group(pool, size, strategy)
    if len(group) == 0:
        return 0.0, 0.0
    values = advantages(pool, group, objective, estimates=estimates) / len(group)
    correct = pool.correct[group.indices]
    return values[correct].sum(), values[~correct].sum()


def weights(stopping, p, objective, *settings, drop=True, cut=BUDGET) -> tuple[float, float]:
    """Mean and standard deviation of a group's weight; `drop`: uniform pools have none."""
    first = second = 0.0
    for state, probability in law(stopping, p, cut).items():
        if drop and 0 in state:
            continue
        of_correct, of_incorrect = sides(stopping, state, objective, *settings)
        weight = of_correct / p - of_incorrect / (1 - p)
        first += probability * weight
        second += probability * weight**2
    return first, sqrt(max(second - first**2, 0.0))


GROUPS = [("balanced", 4), ("all", 4), ("max_variance", 5)]


@pytest.mark.parametrize("stopping", STOPPINGS, ids=str)
@pytest.mark.parametrize(("strategy", "size"), GROUPS)
@pytest.mark.parametrize(
    "how", [{}, {"drop": False}, *({"cut": cut} for cut in (2, 5, 13))], ids=str
)
def test_linear_is_the_gradient_of_p(stopping, strategy, size, how):
    """f(p) = p has the weight 1, whatever the rule, and where pools are cut short.

    Uniform pools are part of it, at zero.
    """
    for p in PASS_RATES:
        found, _ = weights(stopping, p, "linear", "unbiased", strategy, size, **how)
        assert found == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("stopping", STOPPINGS, ids=str)
def test_log_lacks_pools_without_a_correct_response_and_correct_ones_alone_the_share_of_others(
    stopping,
):
    """Log's weight is (E[1 − p̂] − P(n₊ = 0)·1)/(p(1 − p)): the pools without are left out."""
    for p in PASS_RATES:
        without = sum(weight for state, weight in law(stopping, p).items() if state[0] == 0)
        for strategy, size in GROUPS:
            found, _ = weights(stopping, p, "log", "unbiased", strategy, size)
            assert p * found == pytest.approx(1 - without / (1 - p), abs=1e-12)
        found, _ = weights(stopping, p, "linear", "unbiased", "positives", 4)
        assert found == pytest.approx(1 - p, abs=1e-12)


@pytest.mark.parametrize("p", [*PASS_RATES, 0.1, 0.25, 0.9])
def test_raft_and_reinforce_rej_are_settings_of_reward(p):
    """RAFT: 1/p wherever there is a correct response. Reinforce-Rej: n₊/(N·p) of mixed pools."""
    pools = law(ROUNDS, p)
    solved = 1 - pools.get((0, BUDGET), 0.0)
    raft, _ = weights(ROUNDS, p, "reward", "plug_in", "positives", 4, drop=False)
    assert raft == pytest.approx(solved / p, abs=1e-12)
    share = sum(w * s[0] / sum(s) for s, w in pools.items() if 0 not in s)
    rej, _ = weights(ROUNDS, p, "reward", "plug_in", "all", 4)
    assert rej == pytest.approx(share / p, abs=1e-12)


def bias_row(p: float) -> str:
    """Weight by what it should be, ± its deviation over pools: plug-in, unbiased."""
    cells = []
    for stopping, objective in product((ROUNDS, FOCUSED), ("linear", "log")):
        due = {"linear": 1.0, "log": 1 / p}[objective]
        for estimates in ("plug_in", "unbiased"):
            found = (x / due for x in weights(stopping, p, objective, estimates))
            cells.append(" ± ".join(printed(x, 1 if x >= 9.95 else 2) for x in found))
    return row(p, cells)


def test_the_table_of_weights():
    rows = "\n".join(map(bias_row, (0.05, 0.10, 0.50, 0.90)))
    assert f"\n{rows}\n" in (DOCS / "objectives.md").read_text(encoding="utf-8")
