"""Write the data card of a prepared data set: its contents and how it was made, in Markdown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollwise.files import write_text
from rollwise.reports.page import environment

BAR = 40
"""Characters of the longest bar of the histogram."""

STAGES = {
    "empty_problems": "no question",
    "missing_answers": "no answer",
    "duplicates": "duplicate",
    "near_duplicates": "near duplicate",
    "refuted_solutions": "its solution does not give its answer",
    "too_long": "prompt too long",
    "beyond_limit": "beyond `data.problems`",
    "undrawn": "no response could be drawn",
    "out_of_range": "pass rate out of range",
}
"""Why problems are left out, in this order."""


def write_data_card(path: Path, summary: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Write `README.md` into the folder of a preparation with this summary and these settings."""
    left, stages = summary["read"], []
    for name in filter(summary.__contains__, STAGES):
        left -= summary[name]
        stages.append((STAGES[name], summary[name], left))
    counts = summary.get("histogram", {})  # none without samples
    most = max(counts.values(), default=0)
    bars = [(name, n, "█" * -(-BAR * n // most)) for name, n in counts.items()]
    page = environment().get_template("card.md")
    text = page.render(summary=summary, settings=settings, stages=stages, bars=bars)
    write_text(path / "README.md", text + "\n")
    return path / "README.md"
