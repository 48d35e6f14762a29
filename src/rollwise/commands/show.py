"""What commands show and write: progress, sentences, and tables for 80 columns and in Markdown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rollwise.config import TrainConfig
from rollwise.files import write_text
from rollwise.reports.facts import method
from rollwise.reports.page import PlainTable, shown
from rollwise.statistics import Estimate


@contextmanager
def progress(
    console: Console, name: str, total: int, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """Show a progress bar; yields a function to call with how many more are done (1 by default).

    Where there is no terminal, each call prints a line, if the `unit` of the things is given.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(escape(name), total=total)

    def advance(count: int = 1) -> None:
        bar.advance(task, count)
        if unit and not console.is_terminal:
            done = bar.tasks[0].completed
            console.print(f"{escape(name)}: {done:,.0f} of {total:,} {unit}")

    with bar:
        yield advance


def rounded(value: float, digits: int = 3, sign: str = "") -> str:
    """Show `digits` digits after the point, and no minus sign before a 0."""
    return f"{value:{sign}z.{digits}f}"


def interval(
    estimate: Estimate | Mapping[str, float], digits: int = 3, sign: str = "", separator: str = "\n"
) -> str:
    """Show an estimate and its 95 % interval."""
    ends = estimate if isinstance(estimate, Mapping) else vars(estimate)
    value, low, high = (rounded(ends[part], digits, sign) for part in ("value", "low", "high"))
    return f"{value}{separator}[{low}, {high}]"


def methods_in_words(methods: Mapping[str, TrainConfig]) -> list[str]:
    """Say in a line for each method what its settings come to, defaults included."""
    return [f"{name}: {method(own.model_dump(mode='json'))}" for name, own in methods.items()]


def say(console: Console, sentences: Iterable[str]) -> None:
    """Print sentences, in which names from outside are not read as markup."""
    for sentence in sentences:
        console.print(sentence, markup=False)


def show(console: Console, tables: Iterable[PlainTable]) -> None:
    """Print tables whose first column is a name."""
    for title, header, rows in tables:
        table = Table(title=escape(shown(title)), title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column(header[0], overflow="fold")
        for name in header[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(shown(cell)) for cell in row))
        console.print(table)


def write_figures(
    path: Path,
    content: Any,
    tables: Iterable[PlainTable],
    sentences: Iterable[str],
    first: Iterable[str] = (),
) -> None:
    """Write figures as `path.json`, and as `path.md` tables between sentences."""
    parts = [*first, *(_markdown(*table) for table in tables), *sentences]
    write_text(path.with_suffix(".json"), to_json(content, indent=2).decode() + "\n")
    write_text(path.with_suffix(".md"), "\n\n".join(parts) + "\n")


def _markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    cells = ([shown(c).replace("|", "\\|").replace("\n", " ") for c in line] for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {' | '.join(line)} |" for line in cells)])
