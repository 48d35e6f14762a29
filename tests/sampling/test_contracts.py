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


class SatisfiedAlone:
    def satisfied(self, positives, negatives):
        return positives > negatives

    def __repr__(self):
        return "SatisfiedAlone()"


@pytest.mark.parametrize(
    "rule",
    [
        *(kind() for kind in EXIT_RULES.values()),
        GiveUp(Balanced(), 0.3),
        SatisfiedAlone(),
        GiveUp(SatisfiedAlone(), 0.2),
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


# Plug-ins that are wrong


@dataclass(frozen=True)
class NumbersForArrays(ExitRule):
    def satisfied(self, positives, negatives):
        return bool(np.all(positives > 1))


@dataclass(frozen=True)
class OtherForArrays(ExitRule):
    def satisfied(self, positives, negatives):
        return positives > (1 if np.ndim(positives) else 2)


@dataclass(frozen=True)
class GivesUpTheBest(PositiveFocused):
    def gives_up(self, chance):
        return chance > 0.5


@dataclass(frozen=True)
class Forgets(ExitRule):
    """Returns nothing where it should return False."""

    def satisfied(self, positives, negatives):
        if positives >= 1 and negatives >= 1:
            return True


@dataclass(frozen=True)
class Divides(ExitRule):
    def satisfied(self, positives, negatives):
        return positives / (positives + negatives) > 0.5


class NoDataclass(ExitRule):
    def satisfied(self, positives, negatives):
        return positives >= 1


class Unpicklable(SatisfiedAlone):
    def __init__(self):
        self.rule = lambda: None


@dataclass(frozen=True)
class ExactlyFive(ExitRule):
    def satisfied(self, positives, negatives):
        return positives + negatives == 5


def test_a_rule_that_rounds_may_draw_past_is_warned_of():
    with pytest.warns(UserWarning, match=r"satisfied\(0, 5\) is True, but False after one more"):
        check_exit_rule(ExactlyFive())


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


@dataclass(frozen=True)
class GreedyStream(Streamed):
    def dispatcher(self):
        return Greedy()


class Idle(Greedy):
    def next(self, ahead):
        return None


@dataclass(frozen=True)
class IdleStream(Streamed):
    def dispatcher(self):
        return Idle()


@dataclass(frozen=True)
class OfTheWholePool(Objective):
    def advantages(self, pool, group):
        return pool.rewards - pool.rewards.mean()


@dataclass(frozen=True)
class Uncentred(Objective):
    def advantages(self, pool, group):
        return group.rewards - 0.5


@dataclass(frozen=True)
class InPlace(Objective):
    def advantages(self, pool, group):
        group.rewards[:] -= group.rewards.mean()
        return group.rewards


@dataclass(frozen=True)
class TooMany(Estimated):
    def counts(self, pass_rates):
        return super().counts(pass_rates) + self.maximum


@pytest.mark.parametrize(
    ("check", "plugin", "message"),
    [
        (check_exit_rule, NumbersForArrays(), "keep the arrays' shape"),
        (check_exit_rule, OtherForArrays(), r"satisfied\(2, 0\) is False"),
        (check_exit_rule, GivesUpTheBest(), "must not prefer better chances"),
        (check_exit_rule, Forgets(), r"satisfied\(0, 0\) must be True or False, got None"),
        (check_exit_rule, Divides(), r"satisfied\(0, 0\) divides by zero"),
        (check_exit_rule, NoDataclass(), r"NoDataclass is no dataclass: put `@dataclass\(frozen="),
        (check_exit_rule, Unpicklable(), "must be picklable"),
        (check_schedule, GreedyStream(8), "were surplus"),
        (check_schedule, IdleStream(8), "no draw is handed out"),
        (check_objective, OfTheWholePool(), r"shape \(4,\), got \(12,\)"),
        (check_objective, Uncentred(), "all 0.0 must give 0"),
        (check_objective, InPlace(), "group's rewards were changed"),
        (check_allocation, TooMany(), "at most 32"),
    ],
)
def test_wrong_plugins_are_found_out(check, plugin, message):
    with pytest.raises(AssertionError, match=message):
        check(plugin)
