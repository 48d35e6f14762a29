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
                    [group, f"{row['problems']:,}", _share(row, "avg", " ")]
                    for group, row in figures[way].items()
                ]
                yield f"{name} by {way}", [way, "problems", "avg"], rows
    if "baseline" in summary:
        yield _comparison(summary["baseline"])


def _rows(summary: Summary) -> dict[str, Summary]:
    rows = dict(summary["benchmarks"])
    return rows | ({"all problems": summary["average"]} if "average" in summary else {})


def _figures(summary: Summary) -> PlainTable:
    n, rows = summary["samples"], _rows(summary)
    names = [f"avg@{n}", f"pass@{n}", f"maj@{n}"]
    names = [name for name in names if any(name in row for row in rows.values())]
    title = f"{summary['model']}, share of problems [95 % interval]"
    cells = [
        [name, f"{row['problems']:,}", *(_share(row, figure) for figure in names)]
        for name, row in rows.items()
    ]
    return title, ["benchmark", "problems", *names], cells


def _zero_variance_groups(summary: Summary) -> PlainTable:
    ks, cells = steps_of_k(summary["samples"]), []
    for name, row in _rows(summary).items():
        for kind, words in (("all_correct", "all correct"), ("all_wrong", "all wrong")):
            shares = (row.get(f"{kind}@{k}") for k in ks)
            shown = (f"{share['value']:.2f}" if share else "" for share in shares)
            cells.append([f"{name}, {words}", *shown])
    return "Share of zero-variance groups of k", ["k", *map(str, ks)], cells


def _comparison(baseline: Summary) -> PlainTable:
    rows = baseline["benchmarks"]
    problems = sum(row["problems"] for row in rows.values())
    title = f"Difference to {baseline['folder']} [95 % interval], on the same {problems:,} problems"
    passes = {
        name: [key for key in row if key.startswith("pass@")][-1:] for name, row in rows.items()
    }
    cells = [
        [
            name,
            *(f"{row[count]:,}" for count in ("more_often", "less_often")),
            *(_share(row, key, sign="+") for key in ("avg", *passes[name])),
        ]
        for name, row in rows.items()
    ]
    several = next((key for keys in passes.values() for key in keys), None)
    header = ["benchmark", "better", "worse", "avg"]
    return title, [*header, *([several] if several else [])], cells


def _share(row: Summary, name: str, separator: str = "\n", sign: str = "") -> str:
    if name not in row:
        return ""
    value, low, high = (f"{row[name][part]:{sign}.3f}" for part in ("value", "low", "high"))
    return f"{value}{separator}[{low}, {high}]"
