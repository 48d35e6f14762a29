"""The progress that a command shows while it draws responses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def problem_progress(console: Console, name: str, problems: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yields a function to call with the number of further problems done."""
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
