"""Write the report of a plan."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from rollwise.evaluation.planning import Plan
from rollwise.files import write_text
from rollwise.reports.report import page_environment, safe_svg


def write_plan_report(
    path: Path, plans: Mapping[str, Plan], sentences: Sequence[str], steps: int, warmup: int
) -> Path:
    """Write `report.html` into the folder of a plan: one page that needs nothing beside it.

    Args:
        path: The folder.
        plans: The figures of each method.
        sentences: What they say.
        steps: That they are means over.
        warmup: Steps that were left out before.

    Raises:
        RunError: It cannot be written.
    """
    from rollwise.reports import plots

    template = (files("rollwise.reports") / "plan.html").read_text(encoding="utf-8")
    page = (
        page_environment()
        .from_string(template)
        .render(
            name=path.resolve().name,
            plot=safe_svg(plots.signal_of_methods(plans)),
            plans=plans,
            sentences=sentences,
            steps=steps,
            warmup=warmup,
        )
    )
    report = path / "report.html"
    write_text(report, page)
    return report
