"""Write the report of a comparison of methods."""

from pathlib import Path
from typing import Any

import numpy as np

from rollwise.evaluation.curves import Comparison, label_of, mean_over_seeds
from rollwise.files import write_text
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.facts import version_fact
from rollwise.reports.page import render_page

POINTS = 60
"""Points of each curve."""


def write_comparison_report(path: Path, comparison: Comparison, seconds: str) -> Path:
    """Write `report.html` into the folder of a comparison: one page that needs nothing beside it.

    Args:
        path: The folder.
        comparison: What was found.
        seconds: A sentence that says whether seconds can be compared.

    Raises:
        RunError: It cannot be written.
    """
    name = path.resolve().name
    seeds = sorted({seed for curves in comparison.curves.values() for seed in curves})
    grids: dict[str, Any] = {}
    charts = [accuracy_against(cost, comparison, grids) for cost in comparison.costs]
    page = render_page(
        "comparison.html",
        name,
        data={"charts": charts, "grids": grids},
        facts={
            "methods": ", ".join(comparison.results),
            "seeds": ", ".join(map(str, seeds)),
            "version": version_fact(),
            "command": f"rollwise compare --output {name} --resume",
        },
        comparison=comparison,
        labels={cost: label_of(cost) for cost in comparison.costs},
        seconds=seconds,
    )
    report = path / "report.html"
    write_text(report, page)
    return report


def accuracy_against(cost: str, comparison: Comparison, grids: dict[str, Any]) -> Chart:
    """Draw the accuracy of each method against one cost: its runs, and their mean over seeds.

    The band around the mean is its 95 % interval over seeds. Both end where the first of a method's
    runs ends.
    """
    curves = comparison.curves
    most = max(float(curve.costs[cost][-1]) for runs in curves.values() for curve in runs.values())
    grid, label = np.linspace(0, most, POINTS), label_of(cost)
    grids[f"{label} spent"] = {label: grid}
    lines = []
    for colour, (method, of_seeds) in enumerate(curves.items()):
        found = {seed: curve.accuracy_at(cost, grid) for seed, curve in of_seeds.items()}
        if len(found) > 1:
            lines += [
                line(f"{method}, seed {seed}", values, style="faint", colour=colour, group=method)
                for seed, values in found.items()
            ]
        means = [mean_over_seeds(values) for values in zip(*found.values(), strict=True)]
        values, low, high = ([getattr(m, part) for m in means] for part in ("value", "low", "high"))
        band = {"low": np.clip(low, 0, 1), "high": np.clip(high, 0, 1)} if len(found) > 1 else {}
        lines.append(line(method, values, colour=colour, **band))
    target = np.full(POINTS, comparison.target)
    lines.append(line("target", target, style="dashed", colour=7))
    return chart(cost, f"Held-out accuracy against {label}", lines, f"{label} spent", low=0)
