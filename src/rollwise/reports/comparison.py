"""Write the report of a comparison of methods."""

from importlib.resources import files
from pathlib import Path

from rollwise.evaluation.curves import COSTS, Comparison
from rollwise.files import write_text
from rollwise.reports.report import page_environment, safe_svg


def write_comparison_report(path: Path, comparison: Comparison) -> Path:
    """Write `report.html` into the folder of a comparison: one page that needs nothing beside it.

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
            plot=safe_svg(plots.accuracy_of_methods(comparison.curves, comparison.target)),
            comparison=comparison,
            costs=COSTS,
        )
    )
    report = path / "report.html"
    write_text(report, page)
    return report
