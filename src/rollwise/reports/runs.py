"""Write the report of a folder of runs: one table and one set of charts of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollwise.errors import RunError, one_line
from rollwise.files import is_locked
from rollwise.records import Row, RunFolder, flatten
from rollwise.reports.charts import Chart
from rollwise.reports.facts import differing, method
from rollwise.reports.findings import findings_of
from rollwise.reports.page import link_to, write_page
from rollwise.reports.report import UNFIT, write_report
from rollwise.reports.run_charts import RunCharts

OVERLAID = ("heldout", "reward", "belief", "response_tokens", "truncated", "entropy", "gradient")
"""The charts that are drawn of all runs together: those of one figure."""

ALL_POINTS, FEWEST_POINTS, MOST_POINTS = 4000, 20, 200
"""Points of a chart's lines together; those of one line, at least and at most."""

MOST_SETTINGS = 20
"""Columns for settings in which runs differ."""


@dataclass(frozen=True)
class _Run:
    name: str
    config: Row
    charts: RunCharts
    cells: Mapping[str, str]


def write_reports(path: Path) -> Path:
    """Write the report of a run, or of all runs within a folder, whose own are brought up to date.

    Raises:
        RunError: There is no run in the folder, or the report cannot be written.
    """
    if RunFolder(path).has_config or not (found := _runs_within(path)):
        return write_report(path, goes_on=is_locked(path))
    runs, remarks = [], []
    points = min(MOST_POINTS, max(FEWEST_POINTS, ALL_POINTS // len(found)))
    for name, folder in found.items():
        try:
            runs.append(_read(name, folder, path, points))
        except (RunError, *UNFIT) as error:
            remarks.append(f"Left out is {name}, which has no report: {one_line(error)}.")
    if not runs:
        raise RunError(f"none of the runs in {path} can be read: {remarks[0]}")
    shown = differing([run.config for run in runs])
    if len(shown) > MOST_SETTINGS:
        remarks.append(f"Of {len(shown)} settings that differ, {MOST_SETTINGS} are shown.")
    charts, grids = _overlaid(runs)
    rows = []
    for run in runs:
        flat = flatten(run.config, ".")
        settings = {name: str(flat.get(name, "–")) for name in shown[:MOST_SETTINGS]}
        rows.append({**run.cells, **settings})
    return write_page(
        path,
        "methods.html",
        data={"charts": charts, "grids": grids},
        facts={"runs": str(len(runs))},
        kind="runs",
        sentences=remarks,
        tables=[("", list(rows[0]), [list(row.values()) for row in rows])],
    )


def _runs_within(path: Path) -> dict[str, Path]:
    """Find the runs below a folder, by their names in it; checkpoints hold copies, not runs."""
    found = {
        file.parent.relative_to(path).as_posix(): file.parent
        for file in sorted(path.rglob("metrics.jsonl"))
        if "checkpoints" not in file.relative_to(path).parts
    }
    return {name: folder for name, folder in found.items() if RunFolder(folder).has_config}


def run_link(text: str, run: Path | None, page: Path) -> str:
    """Link to a run's report, which is written if it is missing or older than the run's metrics.

    Args:
        text: What is shown.
        run: Its folder, if it is known.
        page: The folder of the page with the link.

    Returns:
        The text alone where the run is gone, or cannot have a report.
    """
    if run is None or not (metrics := run / "metrics.jsonl").exists():
        return text
    report = run / "report.html"
    if not report.exists() or report.stat().st_mtime < metrics.stat().st_mtime:
        try:
            write_report(run, goes_on=is_locked(run))
        except RunError:
            return text
    return link_to(report, text, page)


def _read(name: str, path: Path, page: Path, points: int) -> _Run:
    """Read a run for the page in a folder, with the cells of its row by the names of columns."""
    folder = RunFolder(path)
    config, lines = folder.read_config(), folder.read_metrics()
    evaluated = [next(iter(line["heldout"].values())) for line in lines if "heldout" in line]
    accuracies = [f"{figure['value']:.3f}" for figure in evaluated] or ["–"]
    goes_on = "goes on" if is_locked(path) else "stopped"
    cells = {
        "run": run_link(name, path, page),
        "state": "ended" if folder.read_summary() is not None else goes_on,
        "warnings": str(len(findings_of(folder))),
        "held-out before": accuracies[0],
        "after": accuracies[-1],
        "best": max(accuracies),
        "steps": str(lines[-1]["step"]),
        "tokens": f"{sum(line.get('tokens', 0) for line in lines):,}",
        "minutes": f"{lines[-1]['elapsed'] / 60:.1f}",
        "started": folder.read_started().get("date", "–"),
        "method": method(config),
    }
    return _Run(name, config, RunCharts(lines, points), cells)


def _overlaid(runs: Sequence[_Run]) -> tuple[list[Chart], dict[str, Any]]:
    """Draw the same figure of all runs in one chart, each over a grid of its own."""
    charts: dict[str, Chart] = {}
    grids: dict[str, Any] = {}
    for colour, run in enumerate(runs):
        for each in run.charts.charts:
            if each["id"] not in OVERLAID:
                continue
            grid = f"{each['grid']} of {run.name}"
            grids[grid] = run.charts.grids[each["grid"]]
            kept = next(line for line in each["lines"] if "group" not in line)
            line = {name: part for name, part in kept.items() if name not in ("low", "high")}
            line |= {"label": run.name, "colour": colour, "grid": grid}
            chart = charts.setdefault(each["id"], each | {"lines": [], "grid": grid})
            chart["lines"].append(line)
    return list(charts.values()), grids
