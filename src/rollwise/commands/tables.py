"""The tables of an evaluation, for a terminal of 80 columns."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from rollwise.evaluation import steps_of_k
from rollwise.reports.page import shown


def evaluation_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yield tables of accuracy, zero-variance groups, levels and subjects, and the comparison."""
    yield _figures(summary)
    yield _zero_variance_groups(summary)
    for name, figures in summary["benchmarks"].items():
        for way in ("level", "subject"):
            if way in figures:
                yield _by(way, name, figures[way])
    if "baseline" in summary:
        yield _comparison(summary["baseline"])


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=_safe(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _rows(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    rows = dict(summary["benchmarks"])
    return rows | ({"all problems": summary["average"]} if "average" in summary else {})


def _figures(summary: Mapping[str, Any]) -> Table:
    n = summary["samples"]
    rows = _rows(summary)
    names = [f"avg@{n}", f"pass@{n}", f"maj@{n}"]
    names = [name for name in names if any(name in row for row in rows.values())]
    table = _table(
        f"{summary['model']}, % of problems [95 % interval]", "benchmark", "problems", *names
    )
    for name, row in rows.items():
        table.add_row(_safe(name), f"{row['problems']:,}", *(_percent(row, s, "\n") for s in names))
    return table


def _zero_variance_groups(summary: Mapping[str, Any]) -> Table:
    ks = steps_of_k(summary["samples"])
    names = [str(k) for k in ks]
    table = _table("% of zero-variance groups of k", "k", *names)
    for name, row in _rows(summary).items():
        for kind, words in (("all_correct", "all correct"), ("all_wrong", "all wrong")):
            shares = (row.get(f"{kind}@{k}") for k in ks)
            cells = (f"{100 * share['value']:.0f}" if share else "" for share in shares)
            table.add_row(f"{_safe(name)}, {words}", *cells)
    return table


def _by(way: str, name: str, groups: Mapping[str, Any]) -> Table:
    table = _table(f"{name} by {way}", way, "problems", "avg, %")
    for group, row in groups.items():
        table.add_row(_safe(group), f"{row['problems']:,}", _percent(row, "avg"))
    return table


def _comparison(baseline: Mapping[str, Any]) -> Table:
    title = f"Difference to {baseline['folder']}, points [95 % interval], on the same problems"
    table = _table(title, "benchmark", "problems", "better", "worse", "difference")
    for name, row in baseline["benchmarks"].items():
        last = [key for key in row if key.startswith("pass@")][-1:]
        counts = (f"{row[count]:,}" for count in ("problems", "more_often", "less_often"))
        table.add_row(_safe(name), *counts, _points(row, "avg"))
        for key in last:
            table.add_row(f"{_safe(name)}, {key}", "", "", "", _points(row, key))
    return table


def _percent(row: Mapping[str, Any], name: str, separator: str = " ") -> str:
    if name not in row:
        return ""
    value, low, high = (100 * row[name][part] for part in ("value", "low", "high"))
    return rf"{value:.1f}{separator}\[{low:.1f}, {high:.1f}]"


def _points(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (100 * row[name][part] for part in ("value", "low", "high"))
    return rf"{value:+.1f} \[{low:+.1f}, {high:+.1f}]"


def _safe(text: str) -> str:
    """Escape text from outside, so that it is neither markup nor a control sequence."""
    return escape(shown(text))
