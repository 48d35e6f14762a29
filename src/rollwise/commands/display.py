"""How far a command is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(
    console: Console, name: str, total: int, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """Show a progress bar; yields a function to call with the number of further things done, or 1.

    Args:
        console: Where to show it.
        name: What is under way.
        total: How many things there are.
        unit: What they are called, to print a line for each call where there is no terminal.
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
    task, done = bar.add_task(escape(name), total=total), 0

    def advance(count: int = 1) -> None:
        nonlocal done
        done += count
        bar.update(task, completed=done)
        if unit and not console.is_terminal:
            console.print(f"{escape(name)}: {done:,} of {total:,} {unit}")

    with bar:
        yield advance
