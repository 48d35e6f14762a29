"""Write the report of an evaluation."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollwise.evaluation import steps_of_k
from rollwise.files import write_text
from rollwise.records import flatten
from rollwise.reports.report import page_environment, safe_svg


def write_evaluation_report(
    path: Path, summary: Mapping[str, Any], settings: Mapping[str, Any]
) -> Path:
    """Write `report.html` into the folder of an evaluation: one page that needs nothing beside it.

    Raises:
        RunError: It cannot be written.
    """
    from rollwise.reports import plots

    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    ks = steps_of_k(summary["samples"])
    template = (files("rollwise.reports") / "evaluation.html").read_text(encoding="utf-8")
    page = (
        page_environment()
        .from_string(template)
        .render(
            summary=summary,
            rows=rows,
            ks=ks,
            plots={
                name: [
                    safe_svg(plots.pass_and_majority(row, ks)),
                    safe_svg(plots.zero_variance_at_k(row, ks)),
                ]
                for name, row in rows.items()
            },
            settings=flatten(settings, "."),
        )
    )
    target = path / "report.html"
    write_text(target, page)
    return target
