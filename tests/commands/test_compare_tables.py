"""What the tables of a comparison say of a difference, and of seeds."""

import numpy as np
import pytest

from rollwise.commands.compare_tables import comparison_tables, in_words
from rollwise.statistics.curves import Curve, compare_methods


def accuracy(*ends):
    """The table of a method that ends at these accuracies, seed by seed; the baseline at 0.5."""
    return tables(*ends)[0]


def tables(*ends):
    return comparison_tables(compared(*ends))


def compared(*ends):
    costs = {name: np.array([0.0, 9.0]) for name in ("steps", "draws", "tokens", "seconds")}
    methods = {
        name: {seed: Curve(np.array([0.1, end]), costs) for seed, end in enumerate(found)}
        for name, found in (("base", [0.5] * len(ends)), ("other", ends))
    }
    return compare_methods(methods, "base", 0.3, {})


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.7, 0.71, 0.72), "better"), ((0.3, 0.31, 0.32), "worse"), ((0.4, 0.5, 0.6), "not shown")],
)
def test_a_difference_whose_interval_spans_0_is_not_shown(ends, verdict):
    _, _, rows = accuracy(*ends)
    assert (rows[1][0], rows[1][-1]) == ("other", verdict)


@pytest.mark.parametrize(
    ("ends", "reached", "cell"),
    [
        ((0.1, 0.2), "0/2", "not reached"),
        ((0.2, 0.5), "1/2", "≥ 0.71"),  # the root of 1, all that was spent, and of a half
        ((0.5, 0.5), "2/2", "0.50"),
    ],
)
def test_a_target_that_was_not_reached_has_no_cost(ends, reached, cell):
    _, header, rows = tables(*ends)[1]
    assert header[:2] == ["method", "reached"]
    assert rows[1][1] == reached
    assert [shown.split()[0] if cell[0] == "0" else shown for shown in rows[1][2:]] == [cell] * 3


@pytest.mark.parametrize(
    ("ends", "said"), [((0.6,), "one seed"), ((0.6, 0.6), "+0.100 to base with every")]
)
def test_a_difference_without_an_interval_is_said_to_have_none(ends, said):
    """Also where two seeds have the same difference, which may be chance."""
    (first, *_) = in_words(compared(*ends))
    assert first.startswith("other: ") and said in first
    assert accuracy(*ends)[2][1][-2:] == ["", ""]


def test_one_seed_is_one_seed():
    assert "at the end, 1 seed, and" in accuracy(0.6)[0]
    assert "at the end, 2 seeds, and" in accuracy(0.6, 0.7)[0]
