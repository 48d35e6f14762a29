"""Write the report of a plan."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.evaluation import Estimate
from rollwise.evaluation.planning import Plan
from rollwise.files import write_text
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.facts import version_fact
from rollwise.reports.page import PlainTable, render_page


def write_plan_report(
    path: Path,
    plans: Mapping[str, Plan],
    sentences: Sequence[str],
    steps: int,
    warmup: int,
    tables: Sequence[PlainTable] = (),
) -> Path:
    """Write `report.html` into the folder of a plan: one page that needs nothing beside it.

    Args:
        path: The folder.
        plans: The figures of each method.
        sentences: What they say.
        steps: That they are means over.
        warmup: Steps that were left out before.
        tables: Further ones.

    Raises:
        RunError: It cannot be written.
    """
    grids: dict[str, Any] = {}
    around = {
        method: {
            figure: Estimate(mean.value, mean.value - mean.error, mean.value + mean.error)
            for figure, mean in plan.items()
        }
        for method, plan in plans.items()
    }
    charts = [signal_against(cost, around, grids) for cost in ("tokens", "seconds")]
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
        tables=tables,
    )
    report = path / "report.html"
    write_text(report, page)
    return report


def signal_against(
    cost: str, methods: Mapping[str, Mapping[str, Estimate]], grids: dict[str, Any]
) -> Chart:
    """Draw the signal of each method's step against one cost, with bars for both.

    Args:
        cost: One of the figures.
        methods: Method -> figure -> its value, and the ends of its bar.
        grids: Gets the grid of the chart.
    """
    spent = np.unique([figures[cost].value for figures in methods.values()])
    grids[cost] = {f"{cost} of a step": spent}
    lines = []
    for colour, (method, figures) in enumerate(methods.items()):
        at, signal = figures[cost], figures["signal"]
        bars = {"left": at.low, "right": at.high, "low": signal.low, "high": signal.high}
        values = np.where(spent == at.value, signal.value, np.nan)
        lines.append(line(method, values, style="points", colour=colour, bars=bars))
    return chart(f"signal-{cost}", f"Signal against {cost}", lines, cost, low=0, fromzero=True)
