"""What a command that draws responses shows meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(console: Console, name: str, problems: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many further problems are done; show how far it is."""
    bar = Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        disable=not console.is_terminal,
    )
    task, done = bar.add_task(escape(name), total=problems), 0

    def on_portion(count: int) -> None:
        nonlocal done
        done += count
        bar.update(task, completed=done)
        if not console.is_terminal:
            console.print(f"{escape(name)}: {done:,} of {problems:,} problems")

    with bar:
        yield on_portion
