"""The ledger of a run: where its draws and its tokens went."""

from collections.abc import Sequence
from typing import Any

from rollwise.records import Row
from rollwise.reports.charts import Chart, chart, line
from rollwise.reports.run_charts import RunCharts
from rollwise.step.ledger import PLACES

WHAT = {
    "trained": "in groups that were learned from",
    "spare": "beside such a group in its pool, not chosen",
    "zero_variance": "in pools that taught nothing: all advantages 0",
    "surplus": "beyond their prompt's exit: cancelled or dropped",
    "pilot": "pilots, by which others were shared out",
    "failed": "attempts that failed; their draws were repeated or lost",
}


COLOURS = (2, 6, 1, 3, 4, 7)
"""Of each place."""


def run_ledger(lines: Sequence[Row]) -> Row | None:
    """Add up the ledgers of a run's steps; None where no step has been taken.

    Returns:
        `rows`, one for each place with `draws` and `tokens` and their shares, their `total`s, and
        how many of the responses in pools were `truncated`.
    """
    found = [row["ledger"] for row in lines if row["step"] > 0]
    if not found:
        return None
    sums = {
        kind: {name: sum(each[kind].get(name, 0) for each in found) for name in PLACES}
        for kind in ("draws", "tokens")
    }
    total = {kind: sum(counts.values()) for kind, counts in sums.items()}
    rows: list[dict[str, Any]] = [
        {
            "name": name.replace("_", " "),
            "what": WHAT[name],
            **{kind: sums[kind][name] for kind in sums},
            **{f"{kind}_share": sums[kind][name] / max(1, total[kind]) for kind in sums},
        }
        for name in PLACES
        if sums["draws"][name] or sums["tokens"][name]
    ]
    truncated = {
        kind: sum(each["truncated"][kind] for each in found) for kind in ("draws", "tokens")
    }
    return {"rows": rows, "total": total, "truncated": truncated}


def ledger_chart(run: RunCharts) -> Chart | None:
    """Draw where the tokens of each step went, as shares; None where all went to one place."""
    tokens = [row["ledger"]["tokens"] for row in run.steps]
    lines = []
    for colour, name in enumerate(PLACES):
        shares = [max(0, each.get(name, 0)) / max(1, sum(each.values())) for each in tokens]
        if any(shares):
            values = run.averaged(run.of_steps(shares))
            lines.append(line(name.replace("_", " "), values, colour=COLOURS[colour]))
    if len(lines) < 2:
        return None
    return chart("ledger", lines)
