"""The tables of an evaluation."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollwise.reports.page import PlainTable
from rollwise.statistics import steps_of_k

Summary = Mapping[str, Any]


def evaluation_tables(summary: Summary) -> Iterator[PlainTable]:
    """Yield tables of accuracy, zero-variance groups, levels and subjects, and the comparison."""
    yield _figures(summary)
    yield _zero_variance_groups(summary)
    for name, figures in summary["benchmarks"].items():
        for way in ("level", "subject"):
            if way in figures:
                rows = [
                    [group, f"{row['problems']:,}", _percent(row, "avg", " ")]
                    for group, row in figures[way].items()
                ]
                yield f"{name} by {way}", [way, "problems", "avg, %"], rows
    if "baseline" in summary:
        yield _comparison(summary["baseline"])


def _rows(summary: Summary) -> dict[str, Summary]:
    rows = dict(summary["benchmarks"])
    return rows | ({"all problems": summary["average"]} if "average" in summary else {})


def _figures(summary: Summary) -> PlainTable:
    n, rows = summary["samples"], _rows(summary)
    names = [f"avg@{n}", f"pass@{n}", f"maj@{n}"]
    names = [name for name in names if any(name in row for row in rows.values())]
    title = f"{summary['model']}, % of problems [95 % interval]"
    cells = [
        [name, f"{row['problems']:,}", *(_percent(row, figure) for figure in names)]
        for name, row in rows.items()
    ]
    return title, ["benchmark", "problems", *names], cells


def _zero_variance_groups(summary: Summary) -> PlainTable:
    ks, cells = steps_of_k(summary["samples"]), []
    for name, row in _rows(summary).items():
        for kind, words in (("all_correct", "all correct"), ("all_wrong", "all wrong")):
            shares = (row.get(f"{kind}@{k}") for k in ks)
            shown = (f"{100 * share['value']:.0f}" if share else "" for share in shares)
            cells.append([f"{name}, {words}", *shown])
    return "% of zero-variance groups of k", ["k", *map(str, ks)], cells


def _comparison(baseline: Summary) -> PlainTable:
    title = f"Difference to {baseline['folder']}, points [95 % interval], on the same problems"
    cells = []
    for name, row in baseline["benchmarks"].items():
        counts = (f"{row[count]:,}" for count in ("problems", "more_often", "less_often"))
        cells.append([name, *counts, _points(row, "avg")])
        for key in [key for key in row if key.startswith("pass@")][-1:]:
            cells.append([f"{name}, {key}", "", "", "", _points(row, key)])
    return title, ["benchmark", "problems", "better", "worse", "difference"], cells


def _percent(row: Summary, name: str, separator: str = "\n") -> str:
    if name not in row:
        return ""
    value, low, high = (100 * row[name][part] for part in ("value", "low", "high"))
    return f"{value:.1f}{separator}[{low:.1f}, {high:.1f}]"


def _points(row: Summary, name: str) -> str:
    value, low, high = (100 * row[name][part] for part in ("value", "low", "high"))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
