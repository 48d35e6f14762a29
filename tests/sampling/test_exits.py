"""Exit rules: what they answer and refuse."""

import numpy as np
import pytest

from rollwise.sampling import Balanced, FixedCount, PositiveFocused, RolloutSession, Rounds


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


@pytest.mark.parametrize("wrong", [None, "balanced", Rounds()])
def test_what_cannot_be_satisfied_is_no_rule(wrong):
    with pytest.raises(TypeError, match=r"inherits from rollwise\.ExitRule"):
        RolloutSession("a", wrong)
