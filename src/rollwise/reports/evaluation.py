"""Write the report of an evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollwise.config import EvaluateConfig
from rollwise.records import flatten
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.facts import command, version_fact
from rollwise.reports.page import write_page
from rollwise.statistics import steps_of_k

RESPONSES = "responses, k"


def write_evaluation_report(
    path: Path, summary: Mapping[str, Any], settings: Mapping[str, Any]
) -> Path:
    """Write `report.html` into the folder of an evaluation: one page that needs nothing beside it.

    Raises:
        RunError: It cannot be written.
    """
    rows = dict(summary["benchmarks"])
    if "average" in summary:
        rows["all problems"] = summary["average"]
    ks = steps_of_k(summary["samples"])
    data = {
        "charts": [made for at, row in enumerate(rows.values()) for made in _charts(at, row, ks)],
        "grids": {"k": {RESPONSES: np.log2(ks)}},
    }
    return write_page(
        path,
        "evaluation.html",
        summary["model"],
        data=data,
        facts={
            "benchmarks": ", ".join(summary["benchmarks"]),
            "method": f"{summary['samples']} responses to each problem; intervals are 95 %, over "
            "problems",
            "seed": str(settings.get("seed", "not recorded")),
            "version": version_fact(),
            "command": command("evaluate", EvaluateConfig, settings),
        },
        summary=summary,
        rows=rows,
        ks=ks,
        settings=flatten(settings, "."),
    )


def _charts(place: int, figures: Mapping[str, Any], ks: Sequence[int]) -> list[Chart]:
    """pass@k and maj@k, and zero-variance groups (Figure 2 of Reinforce-Ada, arXiv 2510.04996)."""
    found = [
        (
            f"solved-{place}",
            "Problems solved by k responses",
            {"pass": "at least one correct (pass@k)", "maj": "majority correct (maj@k)"},
        ),
        (
            f"zero-variance-{place}",
            "Zero-variance groups of k responses",
            {"all_correct": "all correct", "all_wrong": "all wrong"},
        ),
    ]
    return [
        chart(
            name,
            title,
            [_line(label, [figures.get(f"{of}@{k}") for k in ks]) for of, label in names.items()],
            "k",
            unit="share",
            low=0,
            high=1,
            xpower=2,
        )
        for name, title, names in found
    ]


def _line(label: str, estimates: Sequence[Mapping[str, float] | None]) -> dict[str, Any]:
    value, low, high = (
        np.array([np.nan if each is None else each[name] for each in estimates])
        for name in ("value", "low", "high")
    )
    return line(label, value, low=low, high=high, points=True)
