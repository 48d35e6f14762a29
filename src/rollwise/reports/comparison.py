"""Write the report of a comparison of methods."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollwise.evaluation.curves import COSTS, Curves, MethodResult
from rollwise.files import write_text
from rollwise.reports.report import page_environment, safe_svg


def write_comparison_report(
    path: Path,
    curves: Mapping[str, Curves],
    baseline: str,
    target: float,
    results: Mapping[str, MethodResult],
    chosen: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Write `report.html` into the folder of a comparison: one page that needs nothing beside it.

    Args:
        path: The folder.
        curves: Of each method, by seed.
        baseline: The method that the others are compared with.
        target: The accuracy whose cost is compared.
        results: Of each method.
        chosen: The values that each method was given of those that it could choose from.

    Raises:
        RunError: It cannot be written.
    """
    from rollwise.reports import plots

    template = (files("rollwise.reports") / "comparison.html").read_text(encoding="utf-8")
    page = (
        page_environment()
        .from_string(template)
        .render(
            name=path.resolve().name,
            plot=safe_svg(plots.accuracy_of_methods(curves, target)),
            baseline=baseline,
            target=target,
            results=results,
            costs=COSTS,
            chosen={method: values for method, values in chosen.items() if values},
        )
    )
    report = path / "report.html"
    write_text(report, page)
    return report
