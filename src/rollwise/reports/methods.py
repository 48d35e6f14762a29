"""Write the report of a comparison of methods."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.errors import RunError
from rollwise.records import flatten
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.facts import method
from rollwise.reports.page import PlainTable, link_to, write_page
from rollwise.reports.report import write_report
from rollwise.simulate.tables import number
from rollwise.statistics.curves import COSTS, Comparison, label_of, mean_over_seeds

POINTS = 60
"""Points of each curve."""


def write_comparison_report(
    path: Path,
    comparison: Comparison,
    sentences: Sequence[str],
    tables: Sequence[PlainTable],
    configs: Mapping[str, Mapping[str, Any]],
    command: str = "",
) -> Path:
    """Write the report of a comparison, with the terminal's tables and sentences."""
    seeds = sorted({seed for curves in comparison.curves.values() for seed in curves})
    grids: dict[str, Any] = {}
    charts = [_accuracy_against(cost, comparison, grids) for cost in COSTS]
    return write_page(
        path,
        "methods.html",
        data={"charts": charts, "grids": grids},
        facts={"seeds": ", ".join(map(str, seeds)), **({"command": command} if command else {})},
        baseline=comparison.baseline,
        sentences=sentences,
        tables=[*tables, _runs(path, comparison), *_settings(configs)],
    )


def _runs(path: Path, comparison: Comparison) -> PlainTable:
    """Return the table of all runs, with links to the reports of those that are there."""
    rows = [
        [
            _run_link(f"{method}, seed {seed}", curve.folder, path),
            f"{curve.end:.3f}",
            *(number(float(curve.costs[cost][-1])) for cost in COSTS),
        ]
        for method, curves in comparison.curves.items()
        for seed, curve in sorted(curves.items())
    ]
    return "Runs", ["run", "accuracy at the end", *map(label_of, COSTS)], rows


def _run_link(text: str, run: Path | None, page: Path) -> str:
    """Link to a run's report, written first if older than the run; without one, only `text`."""
    if run is None or not (metrics := run / "metrics.jsonl").exists():
        return text
    report = run / "report.html"
    if not report.exists() or report.stat().st_mtime < metrics.stat().st_mtime:
        try:
            write_report(run)
        except RunError:
            return text
    return link_to(report, text, page)


def _settings(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[PlainTable]:
    rows = [[name, method(config)] for name, config in configs.items()]
    yield "Methods", ["method", "what its settings come to"], rows
    flat = [flatten(config, ".") for config in configs.values()]
    names = dict.fromkeys(name for each in flat for name in each if name != "seed")
    cells = {name: [str(each.get(name, "–")) for each in flat] for name in names}
    if values := [[name, *own] for name, own in cells.items() if len({*own}) > 1]:
        yield "Settings in which they differ", ["setting", *configs], values


def _accuracy_against(cost: str, comparison: Comparison, grids: dict[str, Any]) -> Chart:
    """Draw the accuracy of each method against one cost: its runs, and their mean over seeds."""
    curves = comparison.curves
    most = max(float(curve.costs[cost][-1]) for runs in curves.values() for curve in runs.values())
    grid, label = np.linspace(0, most, POINTS), label_of(cost)
    grids[f"{label} spent"] = {label: grid}
    lines = []
    for colour, (name, of_seeds) in enumerate(curves.items()):
        found = {seed: curve.accuracy_at(cost, grid) for seed, curve in of_seeds.items()}
        if len(found) > 1:
            lines += [
                line(f"{name}, seed {seed}", values, style="faint", colour=colour, group=name)
                for seed, values in found.items()
            ]
        means = [mean_over_seeds(each, (0, 1)) for each in zip(*found.values(), strict=True)]
        values, low, high = ([getattr(m, part) for m in means] for part in ("value", "low", "high"))
        # With two seeds an interval says little: where their curves cross, it would have no width.
        band = {"low": low, "high": high} if len(found) > 2 else {}
        lines.append(line(name, values, colour=colour, **band))
    target = np.full(POINTS, comparison.target)
    lines.append(line("target", target, style="dashed", colour=7))
    title = f"Held-out accuracy against {label}"
    return chart(f"accuracy-{cost}", lines, f"{label} spent", title=title, low=0)
