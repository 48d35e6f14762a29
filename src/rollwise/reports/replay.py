"""Write the report of methods that were replayed on recorded rewards."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollwise.evaluation.replaying import ReplayedMethod
from rollwise.files import write_text
from rollwise.reports.facts import version_fact
from rollwise.reports.page import PlainTable, render_page
from rollwise.reports.plan import signal_against


def write_replay_report(
    path: Path,
    methods: Mapping[str, ReplayedMethod],
    sentences: Sequence[str],
    tables: Sequence[PlainTable],
    has_lengths: bool,
) -> Path:
    """Write `report.html` into the folder of a comparison: one page that needs nothing beside it.

    Args:
        path: The folder.
        methods: What each method does.
        sentences: What they say.
        tables: The same ones as in the terminal.
        has_lengths: Whether tokens are known; else draws are the cost.

    Raises:
        RunError: It cannot be written.
    """
    grids: dict[str, Any] = {}
    means = {name: method.means for name, method in methods.items()}
    costs = ("tokens", "draws") if has_lengths else ("draws",)
    charts = [signal_against(cost, means, grids) for cost in costs]
    name = path.resolve().name
    page = render_page(
        "replay.html",
        name,
        data={"charts": charts, "grids": grids},
        facts={
            "methods": ", ".join(methods),
            "version": version_fact(),
            "command": f"rollwise compare --output {name} --resume",
        },
        sentences=sentences,
        tables=tables,
    )
    report = path / "report.html"
    write_text(report, page)
    return report
