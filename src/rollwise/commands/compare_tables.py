"""The tables of a comparison, and what they say."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollwise.commands.show import interval, rounded
from rollwise.reports.page import PlainTable
from rollwise.statistics import Estimate
from rollwise.statistics.curves import COSTS, Comparison, Reached, label_of


def comparison_tables(comparison: Comparison) -> list[PlainTable]:
    """Return the tables of accuracy, of the cost of the target, and of what was chosen."""
    tables = [_accuracy(comparison), _cost(comparison), _chosen(comparison.chosen)]
    return [table for table in tables if table[2]]


def in_words(comparison: Comparison) -> Iterator[str]:
    """Say whether each method is better than the baseline, and which methods collapsed."""
    baseline = comparison.baseline
    for name, result in comparison.results.items():
        if result.difference is not None:
            verdict = result.verdict.replace("not shown", "no difference is shown")
            difference = interval(result.difference, sign="+", separator=" ")
            yield f"{name}: {difference} to {baseline}: {verdict}."
        elif name != baseline:
            yield f"{name}: {_without_interval(comparison, name)}."
        if result.collapsed:
            seeds = ", ".join(map(str, result.collapsed))
            yield f"{name} collapsed with seed {seeds}: it ended below half of its best accuracy."
    yield (
        "Seconds can be compared only if the machine was equally busy during all runs; if not, "
        "compare CPU seconds."
    )


def _without_interval(comparison: Comparison, name: str) -> str:
    own, base = comparison.curves[name], comparison.curves[comparison.baseline]
    shared = sorted(own.keys() & base.keys())
    if len(shared) < 2:
        return f"one seed cannot show a difference from {comparison.baseline}"
    difference = rounded(own[shared[0]].end - base[shared[0]].end, sign="+")
    return f"{difference} to {comparison.baseline} with every seed: without spread, no interval"


def _accuracy(comparison: Comparison) -> PlainTable:
    counts = sorted({len(result.seeds) for result in comparison.results.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    seeds += " seed" if seeds == "1" else " seeds"
    title = f"Held-out accuracy at the end, {seeds}, and its difference from {comparison.baseline}"
    rows = []
    for name, result in comparison.results.items():
        difference = "" if result.difference is None else interval(result.difference, sign="+")
        figures = [_shown(result.accuracy), rounded(result.middle), rounded(result.worst)]
        rows.append([name, *figures, difference, result.verdict])
    return title, ["method", "mean", "IQM", "worst", "difference", "verdict"], rows


def _cost(comparison: Comparison) -> PlainTable:
    # A terminal of 80 columns has room for four.
    costs = [cost for cost in COSTS if cost not in ("draws", "steps")]
    title = (
        f"Cost of {comparison.target:.3f}, as a share of what {comparison.baseline} spent in all"
    )
    rows = []
    for name, result in comparison.results.items():
        seeds = len(result.seeds)
        cells = [_cost_cell(result.reached[cost], seeds) for cost in costs]
        rows.append([name, f"{result.reached['tokens'].runs}/{seeds}", *cells])
    return title, ["method", "reached", *map(label_of, costs)], rows


def _cost_cell(reached: Reached, seeds: int) -> str:
    """Show a cost; `≥` where a run did not reach the target with all that it spent."""
    if reached.runs == 0:
        return "not reached"
    return _shown(reached.share, 2) if reached.runs == seeds else f"≥ {reached.share.value:.2f}"


def _chosen(chosen: Mapping[str, Mapping[str, Any]]) -> PlainTable:
    names = list(dict.fromkeys(name for values in chosen.values() for name in values))
    rows = [
        [method, *(str(values.get(name, "")) for name in names)]
        for method, values in chosen.items()
        if values
    ]
    return "Settings chosen on other seeds", ["method", *names], rows


def _shown(estimate: Estimate, digits: int = 3) -> str:
    has_width = estimate.low != estimate.high
    return interval(estimate, digits) if has_width else rounded(estimate.value, digits)
