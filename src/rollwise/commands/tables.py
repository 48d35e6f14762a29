"""Tables, and what they say: for a terminal of 80 columns, and in Markdown."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rollwise.config import TrainConfig
from rollwise.files import write_text
from rollwise.reports.facts import method
from rollwise.reports.page import PlainTable, shown


def methods_in_words(methods: Mapping[str, TrainConfig]) -> Iterator[str]:
    """Say in a line each what a method's settings come to, defaults included."""
    for name, config in methods.items():
        yield f"{name}: {method(config.model_dump(mode='json'))}"


def say(console: Console, sentences: Sequence[str]) -> None:
    """Print sentences with names from outside."""
    for sentence in sentences:
        console.print(escape(sentence), highlight=False)


def show(console: Console, tables: Sequence[PlainTable]) -> None:
    """Print tables whose first column is a name."""
    for title, header, rows in tables:
        table = Table(title=escape(shown(title)), title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column(header[0], overflow="fold")
        for name in header[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(shown(cell)) for cell in row))
        console.print(table)


def write_markdown(
    path: Path, tables: Sequence[PlainTable], sentences: Sequence[str], first: Sequence[str] = ()
) -> None:
    """Write the same tables between sentences that go first and those that follow."""
    parts = [*first, *(_markdown(*table) for table in tables), *sentences]
    write_text(path, "\n\n".join(parts) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table for other programs."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, table.getvalue())


def _markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    cells = (" | ".join(_one_line(cell) for cell in line) for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {line} |" for line in cells)])


def _one_line(cell: str) -> str:
    return shown(cell).replace("|", "\\|").replace("\n", " ")
