"""Write the report of a plan."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.evaluation.planning import Plan
from rollwise.files import write_text
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.facts import version_fact
from rollwise.reports.page import render_page


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
    grids: dict[str, Any] = {}
    charts = [signal_against(cost, plans, grids) for cost in ("tokens", "seconds")]
    page = render_page(
        "plan.html",
        path.resolve().name,
        data={"charts": charts, "grids": grids},
        facts={
            "methods": ", ".join(plans),
            "figures": f"means over {steps} simulated steps, after {warmup} of warm-up; ± is the "
            "standard error over steps",
            "version": version_fact(),
        },
        plans=plans,
        sentences=sentences,
    )
    report = path / "report.html"
    write_text(report, page)
    return report


def signal_against(cost: str, plans: Mapping[str, Plan], grids: dict[str, Any]) -> Chart:
    """Draw the signal of each method's step against one cost, with standard errors."""
    spent = np.array([plan[cost].value for plan in plans.values()])
    grids[cost] = {f"{cost} of a step": np.unique(spent)}
    lines = []
    for colour, (method, plan) in enumerate(plans.items()):
        at, signal = plan[cost], plan["signal"]
        bars = {
            "left": at.value - at.error,
            "right": at.value + at.error,
            "low": signal.value - signal.error,
            "high": signal.value + signal.error,
        }
        values = np.where(np.unique(spent) == at.value, signal.value, np.nan)
        lines.append(line(method, values, style="points", colour=colour, bars=bars))
    return chart(f"signal-{cost}", f"Signal against {cost}", lines, cost, low=0, fromzero=True)
