"""Curves of runs, what a target costs, and what differences over seeds are worth."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rollwise.commands.show import in_words
from rollwise.statistics.curves import COSTS, Curve, compare_methods, mean_over_seeds


def curve(accuracy, spent=None):
    """A curve whose every cost is 1, 2, 3, ... at its evaluations, or as told."""
    spent = np.arange(1.0, len(accuracy) + 1) if spent is None else np.array(spent, dtype=float)
    return Curve(np.array(accuracy), dict.fromkeys(COSTS, spent))


def test_a_curve_adds_up_what_the_steps_cost():
    """The evaluation itself costs nothing."""
    heldout = {"avg@4": {"value": 0.25}, "pass@4": {"value": 0.5}}
    seconds = {"sampling": 2.0, "learning": 1.0, "evaluation": 50.0}
    step = {"draws": 10, "tokens": 100, "seconds": seconds, "cpu_seconds": 4.0}
    found = Curve.of_metrics(
        [
            {"step": 0, "heldout": heldout},
            {"step": 1, **step},
            {"step": 2, **step, "heldout": {"avg@4": {"value": 0.75}}},
        ]
    )
    assert found.accuracy.tolist() == [0.25, 0.75]
    costs = {name: values.tolist() for name, values in found.costs.items()}
    assert costs == {
        **{"steps": [0, 2], "draws": [0, 20], "tokens": [0, 200]},
        **{"seconds": [0, 6], "cpu_seconds": [0, 8]},
    }
    assert Curve.from_json(found.as_json()).costs["tokens"].tolist() == [0, 200]
    with pytest.raises(ValueError, match="without an evaluation"):
        Curve.of_metrics([{"step": 1, **step}])


def test_a_target_is_reached_between_evaluations():
    found = curve([0.2, 0.4, 0.8]).cost_of(np.array([0.1, 0.6, 0.8, 0.81]), "tokens")
    np.testing.assert_allclose(found, [1.0, 2.5, 3.0, np.nan])
    assert curve([0.2], [3.0]).cost_of(0.2, "tokens") == 3.0  # a single evaluation
    collapsed = [curve([0.3, 0.7, end]).collapsed for end in (0.34, 0.36)]  # half of 0.7 is .35
    assert collapsed == [True, False]


def test_one_lucky_evaluation_does_not_reach_the_target():
    """The nearest non-decreasing curve of .2, .9, .1, .4 is .2, .467, .467, .467."""
    level = (0.9 + 0.1 + 0.4) / 3
    reached = 1 + (0.4 - 0.2) / (level - 0.2)
    found = curve([0.2, 0.9, 0.1, 0.4]).cost_of(np.array([0.4, level, 0.5]), "tokens")
    np.testing.assert_allclose(found, [reached, 2.0, np.nan])


def test_methods_are_compared_seed_by_seed():
    """By hand: differences .1 and .3 have mean .2 and deviation .1 times the root of two."""
    base = {0: curve([0.2, 0.4]), 1: curve([0.2, 0.6])}
    other = {0: curve([0.4, 0.5]), 1: curve([0.4, 0.9]), 7: curve([0.1, 0.1])}
    comparison = compare_methods({"base": base, "other": other}, "base")
    found = comparison.results
    assert comparison.target == pytest.approx(0.5)
    difference = found["other"].difference
    assert [difference.low, difference.high] == [-1, 1]  # Student's 0.2 ± 12.7 · 0.1, within bounds
    assert found["other"].p_value == pytest.approx(stats.ttest_rel([0.5, 0.9], [0.4, 0.6]).pvalue)
    assert found["base"].p_value is None
    assert found["other"].verdict == "not shown"
    assert found["base"].difference is None
    assert found["base"].verdict == ""
    assert found["other"].worst == 0.1


def test_a_target_that_is_not_reached_counts_with_all_that_was_spent():
    """One that was there before training costs nothing."""
    base = {0: curve([0.2, 0.4], [1, 2]), 1: curve([0.2, 0.4], [1, 2])}
    other = {0: curve([0.4, 0.5], [1, 2]), 1: curve([0.1, 0.1], [1, 4])}
    there = {0: curve([0.5, 0.6], [0, 2])}
    found = compare_methods({"base": base, "other": other, "there": there}, "base", 0.4).results
    reached = {name: found[name].reached["tokens"] for name in found}
    assert reached["other"].runs == 1
    assert reached["other"].share.value == pytest.approx(np.sqrt(1 / 2 * 4 / 2))
    assert reached["base"].share.value == pytest.approx(1.0)
    assert reached["there"].share.value == 0.0


def test_the_baseline_has_its_own_accuracy_once_it_has_spent_everything():
    """Whichever of its runs ended above and which below their mean; a given target is a target."""
    base = {0: curve([0.2, 0.4], [1, 2]), 1: curve([0.2, 0.6], [1, 4])}
    found = compare_methods({"base": base}, "base").results["base"].reached
    assert {(each.runs, each.share.value, each.share.high) for each in found.values()} == {
        (2, 1, 1)
    }
    assert compare_methods({"base": base}, "base", 0.5).results["base"].reached["tokens"].runs == 1


def test_a_run_of_the_baseline_that_collapsed_makes_no_target_easier():
    """Of eight, the lowest two and the highest two do not count."""
    ends = [0.03, 0.6, 0.7, 0.7, 0.7, 0.7, 0.8, 0.9]
    base = {seed: curve([0.1, end]) for seed, end in enumerate(ends)}
    assert compare_methods({"base": base}, "base").target == pytest.approx(0.7)


@pytest.mark.parametrize("count", [3, 8])
def test_the_interval_of_a_cost_is_as_wide_as_students_and_wider_where_the_target_varies(count):
    """The baseline's accuracy is only known as well as its seeds tell."""
    spread = np.linspace(-1, 1, count)
    base = {seed: curve([0.0, 0.5 + 0.1 * by], [0, 1]) for seed, by in enumerate(spread)}
    own = {seed: curve([0.0, 1.0], [0, np.exp(0.2 * by)]) for seed, by in enumerate(spread)}
    costs = [
        compare_methods({"base": base, "own": own}, "base", target).results["own"].reached["tokens"]
        for target in (0.5, None)
    ]
    fixed, varying = (np.log([cost.share.low, cost.share.high]) for cost in costs)
    student = mean_over_seeds(np.log([curve.costs["tokens"][-1] for curve in own.values()]))
    assert [cost.share.value for cost in costs] == pytest.approx([0.5, 0.5])
    half = (student.high - student.low) / 2
    assert fixed - np.log(0.5) == pytest.approx([-half, half], rel=0.3)
    assert varying[0] < fixed[0] and fixed[1] < varying[1]


def test_the_mean_over_seeds_has_students_interval():
    values = [0.2, 0.3, 0.7]
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = mean_over_seeds(values)
    assert [found.low, found.high] == pytest.approx(list(interval), rel=1e-12)
    accuracy = mean_over_seeds([0.95, 0.99, 1.0], (0, 1))
    assert 0.9 < accuracy.low < accuracy.value < accuracy.high == 1
    assert vars(mean_over_seeds([0.4])) == {"value": 0.4, "low": 0.4, "high": 0.4}


@pytest.mark.parametrize(
    ("values", "shown"),
    [((0.03, 0.001, 0.02), ["b", "c", "a"]), ((0.03, 0.001, 0.026), ["b"]), ((0.03,) * 3, [])],
)
def test_many_methods_are_compared_at_5_percent_together(values, shown):
    """Holm 1979: the smallest p with 0.05 / 3, the next with 0.05 / 2, to the first that fails."""
    found = compare_methods({name: {0: curve([0.5])} for name in "dabc"}, "d")
    for name, value in zip("abc", values, strict=True):
        found.results[name] = replace(found.results[name], p_value=value)
    assert found.shown_by_holm() == shown
    *_, said, _ = in_words(found)
    assert said.endswith(f"(Holm's correction): {', '.join(shown) or 'none'}.")
