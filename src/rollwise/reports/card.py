"""Write the data card of a prepared data set: its contents and how it was made, in Markdown."""

import re
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
    "undrawn": "no response could be drawn",
    "out_of_range": "pass rate out of range",
}
"""Why problems are left out, in this order."""


def write_data_card(path: Path, summary: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Write `README.md` into the folder of a preparation with this summary and these settings.

    Raises:
        RunError: It cannot be written.
    """
    left, stages = summary["read"], []
    for name, reason in STAGES.items():
        left -= summary[name]
        stages.append((reason, summary[name], left))
    most = max(summary["histogram"].values())
    bars = [(name, n, "█" * -(-BAR * n // most)) for name, n in summary["histogram"].items()]
    page = environment(code=code).get_template("card.md")
    text = page.render(summary=summary, settings=settings, stages=stages, bars=bars)
    write_text(path / "README.md", text + "\n")
    return path / "README.md"


def code(text: str) -> str:
    """Show text as it is, whatever Markdown or HTML it holds."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", " ", str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
