"""The checks for third parties: all of ours pass, and plug-ins that are wrong are found out."""

from dataclasses import dataclass

import numpy as np
import pytest

from rollwise.sampling import (
    ALLOCATIONS,
    EXIT_RULES,
    OBJECTIVES,
    SCHEDULES,
    Balanced,
    Estimated,
    ExitRule,
    GiveUp,
    Objective,
    PositiveFocused,
    Rounds,
    Streamed,
)
from rollwise.sampling.objectives import GRPO, Reference
from rollwise.sampling.stopping import Stopping
from rollwise.sampling.testing import (
    check_allocation,
    check_exit_rule,
    check_objective,
    check_schedule,
)


@pytest.mark.parametrize(
    "rule",
    [
        *(kind() for kind in EXIT_RULES.values()),
        GiveUp(Balanced(), 0.3),
    ],
    ids=repr,
)
def test_exit_rules(rule):
    check_exit_rule(rule)


@pytest.mark.parametrize(
    "schedule",
    [
        *(kind() for kind in SCHEDULES.values()),
        Rounds(3, 2),
        Rounds(1, 1),
        Streamed(8, speculation=1.0),
        Streamed(8, speculation=0.0),
    ],
    ids=repr,
)
def test_schedules(schedule):
    check_schedule(schedule)


OBJECTIVE_KINDS = [*(kind() for kind in OBJECTIVES.values()), GRPO(scale_by_std=True)]


@pytest.mark.parametrize(
    ("check", "plugin"),
    [
        *((check_objective, plugin) for plugin in [*OBJECTIVE_KINDS, Reference(True)]),
        *((check_allocation, kind()) for kind in ALLOCATIONS.values()),
    ],
)
def test_objectives_and_allocations(check, plugin):
    check(plugin)


@dataclass(frozen=True)
class OneOfEach(ExitRule):
    """Balanced(1, 1), for single counts alone."""

    def satisfied(self, positives, negatives):
        return positives >= 1 and negatives >= 1


def test_a_rule_may_be_for_single_counts_alone():
    check_exit_rule(OneOfEach())
    for schedule in (Streamed(8), Rounds(4, rounds=2)):
        for number in ("expected_need", "chance"):
            plain, arrays = (
                getattr(Stopping(rule, schedule, 8), number)
                for rule in (OneOfEach(), Balanced(1, 1))
            )
            assert np.array_equal(plain, arrays)


def wrong(name, base, **methods):
    """Make a plug-in of these methods, which can be pickled by its name."""
    made = type(name, (base,), {"__module__": __name__, **methods})
    globals()[name] = dataclass(frozen=True)(made)
    return globals()[name]()


def rule_of(name, satisfied):
    return wrong(name, ExitRule, satisfied=satisfied)


class NoDataclass(ExitRule):
    def satisfied(self, positives, negatives):
        return positives >= 1


class Unpicklable(PositiveFocused):
    def __init__(self):
        self.rule = lambda: None


class Greedy:
    """Hands out all draws of the first prompt before it comes to the next."""

    def __init__(self):
        self.prompts = []

    def add(self, prompt):
        self.prompts.append(prompt)

    def changed(self, prompt):
        pass

    def next(self, ahead):
        return next((p for p in self.prompts if p.issued < p.limit), None)


class Idle(Greedy):
    def next(self, ahead):
        return None


def in_place(objective, pool, group):
    group.rewards[:] -= group.rewards.mean()
    return group.rewards


def too_many(allocation, pass_rates):
    return Estimated.counts(allocation, pass_rates) + allocation.maximum


def test_a_rule_that_rounds_may_draw_past_is_warned_of():
    with pytest.warns(UserWarning, match=r"satisfied\(0, 5\) is True, but False after one more"):
        check_exit_rule(rule_of("ExactlyFive", lambda rule, n, m: n + m == 5))


WRONG_RULES = [
    (rule_of("Whole", lambda rule, n, m: bool(np.all(n > 1))), "keep the arrays' shape"),
    (
        rule_of("OtherForArrays", lambda rule, n, m: n > (1 if np.ndim(n) else 2)),
        r"satisfied\(2, 0\) is False",
    ),
    (
        wrong("GivesUpTheBest", PositiveFocused, gives_up=lambda rule, chance: chance > 0.5),
        "must not prefer better chances",
    ),
    (
        rule_of("Forgets", lambda rule, n, m: True if n and m else None),
        r"satisfied\(0, 0\) must be True or False, got None",
    ),
    (
        rule_of("Divides", lambda rule, n, m: n / (n + m) > 0.5),
        r"satisfied\(0, 0\) divides by zero",
    ),
    (NoDataclass(), r"NoDataclass is no dataclass: put `@dataclass\(frozen="),
    (Unpicklable(), "must be picklable"),
]
WRONG_SCHEDULES = [
    (wrong("GreedyStream", Streamed, dispatcher=lambda schedule: Greedy()), "were surplus"),
    (wrong("IdleStream", Streamed, dispatcher=lambda schedule: Idle()), "no draw is handed out"),
]
WRONG_OBJECTIVES = [
    (
        wrong("OfPool", Objective, advantages=lambda self, pool, group: pool.rewards),
        r"shape \(4,\), got \(12,\)",
    ),
    (
        wrong("Uncentred", Objective, advantages=lambda self, pool, group: group.rewards - 0.5),
        "all 0.0 must give 0",
    ),
    (wrong("InPlace", Objective, advantages=in_place), "group's rewards were changed"),
]


@pytest.mark.parametrize(
    ("check", "plugin", "message"),
    [
        *((check_exit_rule, *given) for given in WRONG_RULES),
        *((check_schedule, *given) for given in WRONG_SCHEDULES),
        *((check_objective, *given) for given in WRONG_OBJECTIVES),
        (check_allocation, wrong("TooMany", Estimated, counts=too_many), "at most 32"),
    ],
)
def test_wrong_plugins_are_found_out(check, plugin, message):
    with pytest.raises(AssertionError, match=message):
        check(plugin)
