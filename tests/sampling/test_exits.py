"""Exit rules: what they answer and refuse."""

import numpy as np
import pytest

from rollwise.sampling import (
    Balanced,
    ExitRule,
    FixedCount,
    GiveUp,
    PositiveFocused,
    RolloutSession,
    Rounds,
)

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
