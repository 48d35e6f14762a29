"""The tables of an evaluation."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollwise.commands.show import interval
from rollwise.reports.page import PlainTable
from rollwise.statistics import steps_of_k

Summary = Mapping[str, Any]


def evaluation_tables(summary: Summary) -> Iterator[PlainTable]:
    """Yield tables of accuracy, zero-variance groups, levels and subjects, and the comparison."""
    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    yield _figures(summary, rows)
    yield _zero_variance_groups(summary["samples"], rows)
    for name, figures in summary["benchmarks"].items():
        for way in ("level", "subject"):
            if way in figures:
                cells = [
                    [group, f"{row['problems']:,}", interval(row["avg"], separator=" ")]
                    for group, row in figures[way].items()
                ]
                yield f"{name} by {way}", [way, "problems", "avg"], cells
    if "baseline" in summary:
        yield _comparison(summary["baseline"])


def _figures(summary: Summary, rows: Mapping[str, Summary]) -> PlainTable:
    n = summary["samples"]
    names = [f"avg@{n}", f"pass@{n}", f"maj@{n}"]
    names = [name for name in names if any(name in row for row in rows.values())]
    title = f"{summary['model']}, share of problems [95 % interval]"
    cells = [
        [name, f"{row['problems']:,}", *(interval(row[f]) if f in row else "" for f in names)]
        for name, row in rows.items()
    ]
    return title, ["benchmark", "problems", *names], cells


def _zero_variance_groups(samples: int, rows: Mapping[str, Summary]) -> PlainTable:
    ks, cells = steps_of_k(samples), []
    for name, row in rows.items():
        for kind, words in (("all_correct", "all correct"), ("all_wrong", "all wrong")):
            shares = (row.get(f"{kind}@{k}") for k in ks)
            shown = (f"{share['value']:.2f}" if share else "" for share in shares)
            cells.append([f"{name}, {words}", *shown])
    return "Share of zero-variance groups of k", ["k", *map(str, ks)], cells


def _comparison(baseline: Summary) -> PlainTable:
    rows = baseline["benchmarks"]
    problems = sum(row["problems"] for row in rows.values())
    title = f"Difference to {baseline['folder']} [95 % interval], on the same {problems:,} problems"
    cells, shared = [], set[str].intersection(*map(set, rows.values()))
    passes = sorted((k for k in shared if k.startswith("pass@")), key=lambda k: int(k[5:]))[-1:]
    for name, row in rows.items():
        counts = (f"{row[count]:,}" for count in ("more_often", "less_often"))
        cells.append([name, *counts, *(interval(row[key], sign="+") for key in ("avg", *passes))])
    return title, ["benchmark", "better", "worse", "avg", *passes], cells
