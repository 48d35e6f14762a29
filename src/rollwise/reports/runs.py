"""Write the report of a folder of runs: one table and one set of charts of all of them."""

from collections.abc import Mapping, Sequence
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

MOST_SETTINGS = 20
"""Columns for settings in which runs differ."""


def write_reports(path: Path) -> Path:
    """Write the report of a run, or of all runs in a folder, whose own are brought up to date."""
    if RunFolder(path).has_config or not (found := _runs_within(path)):
        return write_report(path, goes_on=is_locked(path))
    rows, charts, remarks = _read(found, path)
    return write_page(
        path,
        "methods.html",
        data=_overlaid(charts),
        facts={"runs": str(len(rows))},
        kind="runs",
        sentences=remarks,
        tables=[("", list(rows[0]), [list(row.values()) for row in rows])],
    )


def _read(
    found: Mapping[str, Path], page: Path
) -> tuple[list[Row], dict[str, RunCharts], list[str]]:
    """Read runs for a page: a row of cells and the charts of each, and what is left out."""
    rows, charts, configs, remarks = [], {}, [], []
    for name, path in found.items():
        folder = RunFolder(path)
        try:
            config, lines = folder.read_config(), folder.read_metrics()
            row, drawn = _row(name, folder, config, lines, page), RunCharts(lines)
        except (RunError, *UNFIT) as error:
            remarks.append(f"Left out is {name}, which has no report: {one_line(error)}.")
            continue
        rows.append(row)
        charts[name] = drawn
        configs.append(flatten(config, "."))
    if not rows:
        raise RunError(f"none of the runs in {page} can be read: {remarks[0]}")
    settings = differing(configs)
    if len(settings) > MOST_SETTINGS:
        remarks.append(f"Of {len(settings)} settings that differ, {MOST_SETTINGS} are shown.")
    for row, config in zip(rows, configs, strict=True):
        row |= {name: str(config.get(name, "–")) for name in settings[:MOST_SETTINGS]}
    return rows, charts, remarks


def _runs_within(path: Path) -> dict[str, Path]:
    """Find the runs below a folder, by their names in it; checkpoints hold copies, not runs."""
    found = {
        file.parent.relative_to(path).as_posix(): file.parent
        for file in sorted(path.rglob("metrics.jsonl"))
        if "checkpoints" not in file.relative_to(path).parts
    }
    return {name: folder for name, folder in found.items() if RunFolder(folder).has_config}


def run_link(text: str, run: Path | None, page: Path) -> str:
    """Link from the page in a folder to a run's report, which is brought up to date with its run.

    Without a run, or one that can have a report, the text is all.
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


def _row(name: str, folder: RunFolder, config: Row, lines: Sequence[Row], page: Path) -> Row:
    """Return the cells of a run's row, by the names of their columns."""
    evaluated = [next(iter(line["heldout"].values())) for line in lines if "heldout" in line]
    accuracies = [f"{figure['value']:.3f}" for figure in evaluated] or ["–"]
    goes_on = "goes on" if is_locked(folder.path) else "stopped"
    return {
        "run": run_link(name, folder.path, page),
        "state": "ended" if folder.read_summary() is not None else goes_on,
        "warnings": str(len(findings_of(folder))),
        "held-out before": accuracies[0],
        "after": accuracies[-1],
        "best": max(accuracies),
        "steps": str(lines[-1]["step"]),
        "tokens": f"{sum(line.get('tokens', 0) for line in lines):,}",
        "minutes": f"{lines[-1]['elapsed'] / 60:.1f}",
        "started": folder.read_started().get("date", "–")[:16],
        "method": method(config),
    }


def _overlaid(runs: Mapping[str, RunCharts]) -> dict[str, Any]:
    """Draw the same figure of all runs in one chart, each over a grid of its own."""
    charts: dict[str, Chart] = {}
    grids: dict[str, Any] = {}
    for colour, (name, run) in enumerate(runs.items()):
        for each in (chart for chart in run.charts if chart["id"] in OVERLAID):
            grid = f"{each['grid']} of {name}"
            grids[grid] = run.grids[each["grid"]]
            kept = next(line for line in each["lines"] if "group" not in line)
            line = {part: value for part, value in kept.items() if part not in ("low", "high")}
            line |= {"label": name, "colour": colour, "grid": grid}
            charts.setdefault(each["id"], each | {"lines": [], "grid": grid})["lines"].append(line)
    return {"charts": list(charts.values()), "grids": grids}
