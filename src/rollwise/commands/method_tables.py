"""Tables of methods: for a terminal of 80 columns, and in Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from rollwise.config import TrainConfig
from rollwise.evaluation import Estimate
from rollwise.reports.facts import method
from rollwise.reports.page import shown

Cells = list[list[str]]


def methods_in_words(methods: Mapping[str, TrainConfig]) -> Iterator[str]:
    """Say in a line each what a method's settings come to, defaults included."""
    for name, config in methods.items():
        yield f"{name}: {method(config.model_dump(mode='json'))}"


def terminal_table(title: str, header: list[str], rows: Cells) -> Table:
    """Make a table whose first column is the method's name."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(header[0], overflow="fold")
    for name in header[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(shown(cell)) for cell in row))
    return table


def markdown_table(title: str, header: list[str], rows: Cells) -> str:
    """Write the same table in Markdown."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    cells = (" | ".join(_one_line(cell) for cell in line) for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {line} |" for line in cells)])


def number(value: float, sign: str = "") -> str:
    """Show three digits; whole numbers from 100 on."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def zero_variance(figures: Mapping[str, Any]) -> str:
    """Show the shares of zero-variance groups, at first and after; none of single responses."""
    if "zero_variance_first" not in figures:
        return "–"
    first, after = (figures[f"zero_variance_{when}"].value for when in ("first", "after"))
    return f"{100 * first:.0f} → {100 * after:.0f} %"


def interval(estimate: Estimate, separator: str, sign: str = "") -> str:
    """Show an estimate, and its interval after `separator` if it has any width."""
    if estimate.low == estimate.high:
        return number(estimate.value, sign)
    value, low, high = (
        number(part, sign) for part in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value}{separator}[{low}, {high}]"


def _one_line(cell: str) -> str:
    return shown(cell).replace("|", "\\|").replace("\n", " ")
