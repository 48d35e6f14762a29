"""What the estimates and the objectives are worth in expectation: every end of a pool enumerated.

A group's expected gradient is a multiple of ∇p, its *weight*: since ∇p = p·E[∇log π | correct] =
−(1 − p)·E[∇log π | incorrect], the mean of A·∇log π over the members is in expectation
(a₊/p − a₋/(1 − p))·∇p, where a₊ and a₋ are the sums of the advantages over either side, by k.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path

import pytest
import sessions

from rollwise.sampling import Balanced, Pool, PositiveFocused, Rounds, advantages, select_group
from rollwise.sampling.stopping import Stopping

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

ROUNDS = Stopping(Balanced(2, 2), Rounds(8, 4), BUDGET)
SINGLE = Stopping(Balanced(2, 2), AfterEachDraw(), BUDGET)
FOCUSED = Stopping(PositiveFocused(1), Rounds(8, 4), BUDGET)

TARGETS = {
    "linear": lambda p: 1.0,
    "log": lambda p: 1 / p,
    "sqrt": lambda p: 1 / (2 * sqrt(p)),
    "arcsine": lambda p: 1 / sqrt(p * (1 - p)),
}


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


# --- the table of docs/objectives.md ---

DOCUMENT = Path(__file__).parents[2] / "docs" / "objectives.md"
SHOWN = [0.05, 0.10, 0.50, 0.90]


def printed(value: float) -> str:
    """As the table prints numbers: no zero before the point, no digits nobody needs."""
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}".removeprefix("0")


def row(p: float, cells: list[str]) -> str:
    return "| " + " | ".join([f"{p:.2f}".removeprefix("0"), *cells]) + " |"


def bias_row(p: float) -> str:
    """Weight by what it should be, ± its deviation over pools: plug-in, unbiased."""
    cells = []
    for stopping, objective in product((ROUNDS, FOCUSED), ("linear", "log")):
        at_p = TARGETS[objective](p)
        for estimates in ("plug_in", "unbiased"):
            mean, deviation = weights(stopping, p, objective, estimates)
            cells.append(f"{printed(mean / at_p)} ± {printed(deviation / at_p)}")
    return row(p, cells)


def test_the_table_of_the_document():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [bias_row(p) for p in SHOWN]
    start = lines.index(rows[0]) if rows[0] in lines else -1
    assert lines[start : start + len(rows)] == rows


if __name__ == "__main__":
    print(*map(bias_row, SHOWN), sep="\n")
