"""The terminal display of a training run."""

import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from rollwise.commands.show import LINES, SLOWEST, interval, time_left
from rollwise.records import Row
from rollwise.reports.findings import Finding, findings, is_looked_at
from rollwise.signals import TERMINATING, StopRequest


class _Bar(Progress):
    """A progress bar with the figures of the newest step above it, in a line of their own."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from (Text(task.description) for task in self.tasks)
        yield self.make_tasks_table(self.tasks)


class TrainingDisplay:
    """Shows each finished step, and asks the run to stop at Ctrl-C, SIGTERM and SIGHUP.

    The first Ctrl-C stops the run after the current step, with a checkpoint; the second stops it at
    once. Python handles signals in the main thread only; in others this only shows progress.

    `steps` returns how many steps the whole run is expected to have, None if that is not known;
    `done` and `lines` are the number of steps done before and their metrics.
    """

    def __init__(
        self,
        console: Console,
        steps: Callable[[], int | None],
        done: int = 0,
        after_step: Callable[[Row], bool] = lambda row: False,
        config: Mapping[str, Any] | None = None,
        lines: Iterable[Row] = (),
    ) -> None:
        self.stop = StopRequest(self._on_request)
        self._saying: list[threading.Thread] = []
        self._console, self._steps, self._after_step = console, steps, after_step
        self._config, self._lines = config, list(lines)
        self._said = {finding.title for finding in self._findings()}
        self._bar = _Bar(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
            speed_estimate_period=SLOWEST,
        )
        self._task = self._bar.add_task("evaluating", total=steps(), completed=done, speed="")

    def __enter__(self) -> Self:
        self.stop.__enter__()
        if self._console.is_terminal and not self._console.quiet:  # it redirects what is printed
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self.stop.__exit__()
        for thread in self._saying:
            thread.join()

    @property
    def stop_requested(self) -> bool:
        """Whether the run should stop after the current step."""
        return self.stop.number is not None

    def _on_request(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._console.quiet = True  # its terminal is gone, and writing to it would fail
        said = "stopping after this step (press Ctrl-C again to stop at once)"
        if number in TERMINATING:
            said = f"{signal.Signals(number).name}: saving the run"
        # The main thread may be printing: another one waits until it is done.
        thread = threading.Thread(target=self._console.print, args=(said,), daemon=True)
        thread.start()
        self._saying.append(thread)

    def on_step(self, metrics: Row) -> bool:
        """Show the metrics of a finished step; returns what `after_step` does with them."""
        step, total = metrics["step"], self._steps()
        name, heldout = next(iter(metrics.get("heldout", {}).items()), ("", None))
        line, speed = _describe(metrics)
        self._bar.update(self._task, completed=step, total=total, description=line, speed=speed)
        is_due = heldout or step % max(1, (total or 1) // LINES) == 0
        if is_due and speed and not self._console.is_terminal:
            shown = f"step {step:>4}  {line}  {speed}{time_left(self._bar, '  ')}"
            self._console.print(shown, soft_wrap=True)
        if heldout:
            shown = interval(heldout, separator=" ")
            self._console.print(f"step {step:>4}  held-out {name} {shown}", soft_wrap=True)
        self._lines.append(metrics)
        if is_looked_at(metrics) and step != total:  # at the end all are printed
            self._say(self._findings())
        return self._after_step(metrics)

    def _say(self, found: Sequence[Finding]) -> None:
        """Print what is new among findings, and what is no longer there, as the report does not."""
        for finding in found:
            if finding.title not in self._said:
                self._console.print(describe_finding(finding), style="yellow")
        now = {finding.title for finding in found}
        for title in sorted(self._said - now):
            self._console.print(f"no longer: {title}")
        self._said = now

    def _findings(self) -> list[Finding]:
        return [] if self._config is None else findings(self._lines, self._config)


def describe_finding(finding: Finding) -> Text:
    """Describe in a few lines what goes wrong in a run, since when, and what to do."""
    since = f"since step {finding.step}" if finding.step else "from the beginning"
    return Text(f"warning: {finding.title} ({since}). {finding.what} {finding.advice}")


def _describe(metrics: Row) -> tuple[str, str]:
    """Describe a step in a line, and how fast it drew; "" for the first evaluation."""
    if "reward" not in metrics:
        return "begun", ""
    parts = [f"reward {metrics['reward']:.2f}"]
    if metrics["draws_per_prompt"] > 1:  # a single response has no variance to lose
        first, after = (100 * metrics[f"zero_variance_{when}"] for when in ("first", "after"))
        parts.append(f"zero-variance {first:.0f}→{after:.0f} %")
    elif (skill := metrics.get("belief_skill")) is not None:
        parts.append(f"belief skill {skill:.2f}")
    parts.append(f"{metrics['draws']:,} draws")
    if metrics["grader_failures"]:
        parts.append(f"grader failed {metrics['grader_failures']}×")
    speed = metrics["tokens"] / max(metrics["seconds"]["sampling"], 1e-9)
    shown = f"{speed / 1000:.1f}k" if speed >= 1000 else f"{speed:.0f}"
    return "  ".join(parts), f"{shown} tok/s"
