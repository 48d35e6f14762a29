"""The checks for third parties: all of ours pass, and plug-ins that are wrong are found out."""

from dataclasses import dataclass

import numpy as np
import pytest

from rollwise import Balanced, Estimated, ExitRule, Objective, PositiveFocused, Rounds, Streamed
from rollwise.sampling import ALLOCATIONS, EXIT_RULES, OBJECTIVES, SCHEDULES
from rollwise.sampling.objectives import GRPO, Reference
from rollwise.sampling.stopping import Stopping
from rollwise.sampling.testing import (
    check_allocation,
    check_exit_rule,
    check_objective,
    check_schedule,
)


@pytest.mark.parametrize(
    ("check", "plugin"),
    [
        *((check_exit_rule, kind()) for kind in EXIT_RULES.values()),
        *((check_schedule, kind()) for kind in SCHEDULES.values()),
        *((check_schedule, Rounds(*how)) for how in ((3, 2), (1, 1))),
        *((check_schedule, Streamed(8, ahead)) for ahead in (0.0, 1.0)),
        *((check_objective, kind()) for kind in OBJECTIVES.values()),
        *((check_objective, kind(scale_by_std=True)) for kind in (GRPO, Reference)),
        *((check_allocation, kind()) for kind in ALLOCATIONS.values()),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_ours_pass(check, plugin):
    check(plugin)


@dataclass(frozen=True)
class OneAndTwo(ExitRule):
    """Balanced(1, 2), for single counts alone."""

    def satisfied(self, positives, negatives):
        return positives >= 1 and negatives >= 2


def test_a_rule_may_be_for_single_counts_alone():
    check_exit_rule(OneAndTwo())
    for schedule in (Streamed(8), Rounds(4, rounds=2)):
        for number in ("expected_draws", "chance"):
            two = [Stopping(rule, schedule, 8) for rule in (OneAndTwo(), Balanced(1, 2))]
            assert np.array_equal(*(getattr(stopping, number) for stopping in two))


def wrong(name, base, **methods):
    """Make a plug-in of these methods, which can be pickled by its name."""
    made = type(name, (base,), {"__module__": __name__, **methods})
    globals()[name] = dataclass(frozen=True)(made)
    return globals()[name]()


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


WHOLE = wrong("Whole", ExitRule, satisfied=lambda rule, n, m: bool(np.all(n > 1)))
FOR_ARRAYS = wrong("Arrays", ExitRule, satisfied=lambda rule, n, m: n > (1 if np.ndim(n) else 2))
FORGETS = wrong("Forgets", ExitRule, satisfied=lambda rule, n, m: True if n and m else None)
GREEDY = wrong("GreedyStream", Streamed, dispatcher=lambda schedule: Greedy())
IDLE = wrong("IdleStream", Streamed, dispatcher=lambda schedule: Idle())
OF_POOL = wrong("OfPool", Objective, advantages=lambda self, pool, group: pool.rewards)
UNCENTRED = wrong("Uncentred", Objective, advantages=lambda self, pool, group: group.rewards - 0.5)
IN_PLACE = wrong("InPlace", Objective, advantages=in_place)
TOO_MANY = wrong("TooMany", Estimated, counts=too_many)


@pytest.mark.parametrize(
    ("check", "plugin", "message"),
    [
        (check_exit_rule, WHOLE, "but in an array it is"),
        (check_exit_rule, FOR_ARRAYS, r"2, 0\) is False"),
        (check_exit_rule, FORGETS, "or False, got None"),
        (check_exit_rule, NoDataclass(), r"NoDataclass is not a dataclass: put `@dataclass\(froz"),
        (check_exit_rule, Unpicklable(), "must be picklable"),
        (check_schedule, GREEDY, "were surplus"),
        (check_schedule, IDLE, "no draw is handed out"),
        (check_objective, OF_POOL, r"shape \(4,\), got \(12,\)"),
        (check_objective, UNCENTRED, "all 0.0 must give 0"),
        (check_objective, IN_PLACE, "group's rewards were changed"),
        (check_allocation, TOO_MANY, "at most 32"),
    ],
)
def test_wrong_plugins_are_found_out(check, plugin, message):
    with pytest.raises(AssertionError, match=message):
        check(plugin)
