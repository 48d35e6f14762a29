"""What the tables of a comparison say of a difference, and of seeds."""

import numpy as np
import pytest

from rollwise.commands.show import comparison_tables, in_words
from rollwise.statistics.curves import COSTS, Curve, compare_methods


def compared(*ends):
    """Compare a method that ends at these accuracies, seed by seed, with one that ends at 0.5."""
    costs = {name: np.array([0.0, 9.0]) for name in COSTS}
    methods = {
        name: {seed: Curve(np.array([0.1, end]), costs) for seed, end in enumerate(found)}
        for name, found in (("base", [0.5] * len(ends)), ("other", ends))
    }
    return compare_methods(methods, "base", 0.3, {})


@pytest.mark.parametrize(
    ("ends", "seeds", "verdict", "said"),
    [
        ((0.7, 0.71, 0.72), "3 seeds", "better", "better"),
        ((0.3, 0.31, 0.32), "3 seeds", "worse", "worse"),
        ((0.4, 0.5, 0.6), "3 seeds", "not shown", "no difference is shown"),
        # Without an interval, also where two seeds have the same difference, which may be chance.
        ((0.6,), "1 seed", "", "one seed"),
        ((0.6, 0.6), "2 seeds", "", "+0.100 to base with every"),
    ],
)
def test_a_difference_has_a_verdict_where_it_has_an_interval(ends, seeds, verdict, said):
    comparison = compared(*ends)
    title, header, rows = comparison_tables(comparison)[0]
    assert f"at the end, {seeds}, and" in title
    row = dict(zip(header, rows[1], strict=True))
    assert (row["method"], row["verdict"]) == ("other", verdict)
    assert bool(row["difference"]) is bool(verdict)
    first, *_ = in_words(comparison)
    assert first.startswith("other: ") and said in first


@pytest.mark.parametrize(
    ("ends", "reached", "cell"),
    [
        ((0.1, 0.2), "0/2", "not reached"),
        ((0.2, 0.5), "1/2", "≥ 0.71"),  # the root of 1, all that was spent, and of a half
        ((0.5, 0.5), "2/2", "0.50"),
    ],
)
def test_a_target_that_was_not_reached_has_no_cost(ends, reached, cell):
    _, header, rows = comparison_tables(compared(*ends))[1]
    assert header[:2] == ["method", "reached"]
    assert rows[1][1] == reached
    assert [shown.split()[0] if cell[0] == "0" else shown for shown in rows[1][2:]] == [cell] * 3


@pytest.mark.parametrize(("gains", "learned"), [((0.01, 0.02), False), ((0.2, 0.3), True)])
def test_no_cost_is_shown_where_the_baseline_learned_nothing(gains, learned):
    """Before training 0.11 and 0.13: 0.12 ± 0.127 by Student's t with one degree of freedom."""
    costs = {name: np.array([0.0, 9.0]) for name in COSTS}
    starts = (0.11, 0.13)
    runs = {
        seed: Curve(np.array([start, start + gain]), costs)
        for seed, (start, gain) in enumerate(zip(starts, gains, strict=True))
    }
    comparison = compare_methods({"base": runs}, "base", None, {})
    titles = [title for title, *_ in comparison_tables(comparison)]
    assert any(title.startswith("Cost of") for title in titles) == learned
    (_, header, [row]), *_ = comparison_tables(comparison)
    assert row[header.index("before")] == "0.120"
    said = "base is not shown to have learned: 0.135 is not above"
    assert " ".join(in_words(comparison)).startswith(said) != learned
