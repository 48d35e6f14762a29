"""What commands show: progress, sentences, and the tables of evaluations and comparisons."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rollwise.config import TrainConfig
from rollwise.files import write_text
from rollwise.records import flatten
from rollwise.reports.card import STAGES
from rollwise.reports.facts import method
from rollwise.reports.page import PlainTable, shown
from rollwise.statistics import Estimate, steps_of_k
from rollwise.statistics.curves import COSTS, Comparison, Reached, label_of

Summary = Mapping[str, Any]

LINES = 20
"""About how many lines to print over a command, where the output is not a terminal."""

SLOWEST = 3600.0
"""Seconds over which a speed is estimated: steps may take minutes."""


@contextmanager
def progress(
    console: Console, name: str, total: int, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """Show a progress bar; yields a function to call with how many more are done (1 by default).

    Where there is no terminal, about 20 lines are printed, if the `unit` of the things is given.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        disable=not console.is_terminal,
        speed_estimate_period=SLOWEST,
    )
    task = bar.add_task(escape(name), total=total)

    def advance(count: float = 1) -> None:
        before = bar.tasks[0].completed
        done = round(before + count, 6)
        bar.update(task, completed=done)
        if unit and not console.is_terminal and LINES * before // total < LINES * done // total:
            shown = f"{done:,.1f}".removesuffix(".0")
            console.print(f"{escape(name)}: {shown} of {total:,} {unit}{time_left(bar, ', ')}")

    with bar:
        yield advance


def time_left(bar: Progress, separator: str) -> str:
    """Show the time that is left, after a separator; "" while it is not known."""
    left = bar.tasks[0].time_remaining
    return f"{separator}{timedelta(seconds=round(left))} left" if left else ""


def methods_in_words(methods: Mapping[str, TrainConfig]) -> list[str]:
    """Return a line for each method: what its settings come to, and one on how learners differ."""
    settings = {name: asdict(own) for name, own in methods.items()}
    lines = [f"{name}: {method(own).removeprefix(f'{name} · ')}" for name, own in settings.items()]
    learn = [
        flatten({part: own[part] for part in ("step", "learner")}, ".") for own in settings.values()
    ]
    names = [n for n in (learn[0] if learn else ()) if len({str(own[n]) for own in learn}) > 1]
    if names:
        lines.append(f"They learn with {len(names)} different settings: {', '.join(names)}.")
    return lines


def say(console: Console, sentences: Iterable[str]) -> None:
    """Print sentences, in which names from outside are not read as markup."""
    for sentence in sentences:
        console.print(sentence, markup=False)


def rounded(value: float, digits: int = 3, sign: str = "") -> str:
    """Show `digits` digits after the point, and no minus sign before a 0."""
    return f"{value:{sign}z.{digits}f}"


def interval(
    estimate: Estimate | Mapping[str, float], digits: int = 3, sign: str = "", separator: str = "\n"
) -> str:
    """Show an estimate and its 95 % interval."""
    ends = estimate if isinstance(estimate, Mapping) else vars(estimate)
    value, low, high = (rounded(ends[part], digits, sign) for part in ("value", "low", "high"))
    return f"{value}{separator}[{low}, {high}]"


def show(console: Console, tables: Iterable[PlainTable]) -> None:
    """Print tables whose first column is a name."""
    for title, header, rows in tables:
        table = Table(title=escape(shown(title)), title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column(header[0], overflow="fold")
        for name in header[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(shown(cell)) for cell in row))
        console.print(table)


def write_figures(
    path: Path,
    content: Any,
    tables: Iterable[PlainTable],
    sentences: Iterable[str],
    first: Iterable[str] = (),
) -> None:
    """Write figures as `path.json`, and as `path.md` tables between sentences."""
    parts = [*first, *(_markdown(*table) for table in tables), *sentences]
    write_text(path.with_suffix(".json"), to_json(content, indent=2).decode() + "\n")
    write_text(path.with_suffix(".md"), "\n\n".join(parts) + "\n")


def _markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    cells = ([shown(c).replace("|", "\\|").replace("\n", " ") for c in line] for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {' | '.join(line)} |" for line in cells)])


def evaluation_tables(summary: Summary) -> Iterator[PlainTable]:
    """Yield tables of accuracy, zero-variance groups, levels and subjects, and the comparison."""
    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    yield _figures(summary, rows)
    yield _zero_variance_groups(summary["samples"], rows)
    yield from _left_out(summary["benchmarks"])
    for name, figures in summary["benchmarks"].items():
        for way in ("level", "subject"):
            if way in figures:
                cells = [
                    [group, f"{row['problems']:,}", interval(row["avg"], separator=" ")]
                    for group, row in figures[way].items()
                ]
                yield f"{name} by {way}", [way, "problems", "avg"], cells
    if "baseline" in summary:
        yield _difference(summary["baseline"])


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


def _left_out(rows: Mapping[str, Summary]) -> Iterator[PlainTable]:
    """Yield a table of the problems that were left out, if there are any."""
    cells = [
        [name, reason, f"{row[why]:,} of {row['read']:,}"]
        for name, row in rows.items()
        for why, reason in STAGES.items()
        if row.get(why)
    ]
    if cells:
        yield "Problems that were left out", ["benchmark", "reason", "problems"], cells


def _zero_variance_groups(samples: int, rows: Mapping[str, Summary]) -> PlainTable:
    ks, cells = steps_of_k(samples), []
    for name, row in rows.items():
        for kind, words in (("all_correct", "all correct"), ("all_wrong", "all wrong")):
            shares = (row.get(f"{kind}@{k}") for k in ks)
            shown = (f"{share['value']:.2f}" if share else "" for share in shares)
            cells.append([f"{name}, {words}", *shown])
    return "Share of zero-variance groups of k", ["k", *map(str, ks)], cells


def _difference(baseline: Summary) -> PlainTable:
    rows = baseline["benchmarks"]
    problems = sum(row["problems"] for row in rows.values())
    title = (
        f"Difference to {baseline['folder']} [95 % interval], on the same {problems:,} problems, "
        "and how many of them are solved more and less often"
    )
    cells, shared = [], set[str].intersection(*map(set, rows.values()))
    passes = sorted((k for k in shared if k.startswith("pass@")), key=lambda k: int(k[5:]))[-1:]
    for name, row in rows.items():
        counts = (f"{row[count]:,}" for count in ("more_often", "less_often"))
        cells.append([name, *counts, *(interval(row[key], sign="+") for key in ("avg", *passes))])
    return title, ["benchmark", "more often", "less often", "avg", *passes], cells


def comparison_tables(comparison: Comparison) -> list[PlainTable]:
    """Return the tables of accuracy, of the cost of the target, and of what was chosen."""
    costs = [_cost(comparison)] if comparison.learned else []
    return [t for t in (_accuracy(comparison), *costs, _chosen(comparison.chosen)) if t[2]]


def in_words(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on which methods are better than the baseline, and which collapsed."""
    baseline = comparison.baseline
    if not comparison.learned:
        yield (
            f"{baseline} is not shown to have learned: {comparison.target:.3f} is not above its "
            f"accuracy before training, {_shown(comparison.before, separator=' ')}. So "
            "costs say nothing."
        )
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
    differences = sum(result.p_value is not None for result in comparison.results.values())
    if differences > 1:
        shown = ", ".join(comparison.shown_by_holm()) or "none"
        yield (
            f"Each of the {differences} intervals misses 1 time in 20. Different from {baseline} "
            f"at 5 % for all of them together (Holm's correction): {shown}."
        )
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
    return (
        f"{difference} to {comparison.baseline} with every seed: no spread to estimate an interval"
    )


def _accuracy(comparison: Comparison) -> PlainTable:
    counts = sorted({len(result.seeds) for result in comparison.results.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    seeds += " seed" if seeds == "1" else " seeds"
    title = f"Held-out accuracy at the end, {seeds}, and its difference from {comparison.baseline}"
    rows = []
    for name, result in comparison.results.items():
        difference = "" if result.difference is None else interval(result.difference, sign="+")
        before = np.mean([curve.accuracy[0] for curve in comparison.curves[name].values()])
        compared = [_shown(result.accuracy), difference, result.verdict]
        others = [result.middle, result.worst, float(before)]
        rows.append([name, *compared, *map(rounded, others)])
    return title, ["method", "mean", "difference", "verdict", "IQM", "worst", "before"], rows


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


def _shown(estimate: Estimate, digits: int = 3, separator: str = "\n") -> str:
    has_width = estimate.low != estimate.high
    return (
        interval(estimate, digits, "", separator) if has_width else rounded(estimate.value, digits)
    )
