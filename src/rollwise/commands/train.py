"""`rollwise train`: set up a run, train, and write the summary and the report."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rollwise.commands.described import method_in_words, unproven_in_words
from rollwise.commands.folder import read_again, resolve, seal
from rollwise.commands.show import interval, show
from rollwise.commands.train_display import TrainingDisplay, describe_finding
from rollwise.config import TrainConfig, make_config
from rollwise.config.base import merge
from rollwise.config.train import ENDS
from rollwise.errors import PolicyError
from rollwise.files import CHECKSUMS, list_checkpoints
from rollwise.records import Row, RunFolder
from rollwise.records.fingerprints import refuse_other_data
from rollwise.reports import LiveReport, write_report
from rollwise.reports.findings import findings
from rollwise.signals import TERMINATING, Dropped, Terminated

if TYPE_CHECKING:  # torch takes seconds to load
    from rollwise.training.run import Run

CHANGEABLE = (*ENDS, "checkpoint", "records", "evaluation.every", "plugin_folder", "stall_limit")
"""Settings that may differ when a run is resumed; any other change would make it another run."""

REPORT_EVERY = 30.0
"""The fewest seconds between two reports of a run in progress."""


def train(
    layers: Sequence[Mapping[str, Any]],
    path: Path,
    resume: bool,
    console: Console,
    ends_after: Callable[[Row], bool] = lambda row: False,
) -> None:
    """Train in the folder `path`, resume training there, or note that it is done.

    `ends_after` is given the metrics of each step, and returns whether the run ends there.
    """
    config, folder = resolve(TrainConfig, layers, path, resume, CHANGEABLE), RunFolder(path)
    begun = folder.has_config
    checkpoints = list_checkpoints(folder.checkpoints)
    if begun and _has_ended(folder, config, resume):
        _refuse_other_data(folder, config, console)
        console.print(f"the run in {path} is done", markup=False)
        if not (path / CHECKSUMS).exists():  # killed between its summary and these
            seal(path)
    else:
        model, data = config.model.path, config.data.train
        console.print(f"setting up {model:.80} on {data:.80} in {path}", markup=False)
        given = merge(*layers, {"method": config.method} if begun else {})
        console.print(method_in_words(config, given), markup=False)
        if unproven := unproven_in_words(config, given):
            console.print(unproven, markup=False)
        if begun and not checkpoints:
            folder.refuse_to_start_over()
            console.print(f"the run in {path} has no checkpoint yet: it starts over", markup=False)
        with LiveReport(path, REPORT_EVERY) as report:

            def after_step(row: Row) -> bool:
                report.step_ended()
                return ends_after(row)

            train_in(folder, config, bool(checkpoints), console, after_step)
    _show_end(folder.read_summary() or {}, console)
    for finding in findings(folder.read_metrics(), folder.read_config()):
        console.print(describe_finding(finding), style="yellow")
    console.print(f"report: {write_report(path)}", markup=False)


def _refuse_other_data(folder: RunFolder, config: TrainConfig, console: Console) -> None:
    """Refuse to repeat the figures of a run if what it read has changed since."""
    from rollwise.training.data import fingerprints, read_both

    if read := read_again(partial(read_both, config), True, console):
        now = fingerprints(config, read)
        refuse_other_data(folder.path, folder.read_about("read"), now)


def _show_end(summary: Mapping[str, Any], console: Console) -> None:
    rows = [
        [name, *(interval(summary[when][name], separator=" ") for when in ("before", "after"))]
        for name in summary["before"]
    ]
    show(console, [("Held-out problems [95 % interval]", ["", "before", "after"], rows)])
    steps = "step" if summary["steps"] == 1 else "steps"
    if summary.get("stopped"):
        console.print("stopped by a callback")
    console.print(
        f"{summary['steps']:,} {steps}, {summary['draws']:,} draws, {summary['tokens']:,} tokens, "
        f"{summary['seconds']:.0f} s"
    )
    if summary["grader_failures"]:
        console.print(
            f"the grader failed on {summary['grader_failures']:,} responses, evaluations "
            "included; each got no reward"
        )


def train_in(
    folder: RunFolder,
    config: TrainConfig,
    resume: bool,
    console: Console,
    after_step: Callable[[Row], bool] = lambda row: False,
) -> None:
    """Train a run to its end, from the newest checkpoint with `resume`, and write its summary.

    `after_step` is called with the recorded metrics of a step; if it returns True, the run ends
    there. A `KeyboardInterrupt` says that it was asked to stop, and has a checkpoint to resume
    from.
    """
    from rollwise.training.loop import train as run_to_end
    from rollwise.training.run import resume_run, start_run

    run = (resume_run if resume else start_run)(config, folder)
    display = TrainingDisplay(
        console,
        lambda: run.expected_steps,
        run.step,
        after_step,
        asdict(config),
        folder.read_metrics() if resume else (),
    )
    try:
        with run.built, display:
            run.droppable = display.stop.droppable
            finished = run_to_end(run, display)
    except PolicyError as error:
        raise PolicyError(_without_policy(run, error)) from None
    except Dropped:
        raise Terminated(display.stop.number or signal.SIGTERM) from None
    finally:
        run.trackers.close()
    if not finished:
        console.print(f"stopped after step {run.step}")
        if display.stop.number in TERMINATING:
            raise Terminated(display.stop.number)
        raise KeyboardInterrupt
    summary = {"method": config.method, **summarize(folder.read_metrics())}
    folder.write_summary(summary | ({"stopped": True} if run.stopped else {}))
    seal(folder.path)


def _without_policy(run: "Run", error: PolicyError) -> str:
    """Describe at which step a policy broke, and what is left."""
    kept = list_checkpoints(run.folder.checkpoints)
    left = f"the last checkpoint, {kept[-1]}, predates it" if kept else "nothing is saved"
    return (
        f"step {run.step}: {error}; {left}. Lower `learner.learning_rate`, "
        f"which is {run.config.learner.learning_rate:g}"
    )


def summarize(metrics: Sequence[Row]) -> Row:
    """Summarize a run from its metrics: held-out figures before and after, and the cost."""
    evaluated = [line for line in metrics if "heldout" in line]
    steps = [line for line in metrics if line["step"] > 0]
    return {
        "before": evaluated[0]["heldout"],
        "after": evaluated[-1]["heldout"],
        "steps": metrics[-1]["step"],
        "draws": sum(line["draws"] for line in steps),
        "tokens": sum(line["tokens"] for line in steps),
        "grader_failures": sum(line.get("grader_failures", 0) for line in metrics),
        "seconds": metrics[-1]["elapsed"],
    }


def _has_ended(folder: RunFolder, config: TrainConfig, resume: bool) -> bool:
    """Return whether a run has ended where the settings want; `resume` goes on where it stopped."""
    recorded, summary = make_config(folder.read_config()), folder.read_summary()
    same_end = all(getattr(recorded, name) == getattr(config, name) for name in ENDS)
    return same_end and summary is not None and not (resume and summary.get("stopped"))
