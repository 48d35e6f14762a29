"""`rollwise train`: set up a run, train, and write the summary and the report."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rollwise.commands.folder import settle
from rollwise.commands.train_display import TrainingDisplay, describe_finding, summary_table
from rollwise.config import TrainConfig, make_config
from rollwise.config.train import ENDS
from rollwise.errors import PolicyError
from rollwise.files import damaged_files, list_checkpoints
from rollwise.records import Row, RunFolder, refuse_changes
from rollwise.records.final import damaged, seal
from rollwise.reports import LiveReport, write_report
from rollwise.reports.findings import findings_of
from rollwise.signals import TERMINATING, Dropped, Terminated

if TYPE_CHECKING:  # torch takes seconds to load
    from rollwise.training.state import Run

CHANGEABLE = (*ENDS, "checkpoint", "records", "evaluation.every", "plugin_folder", "stall_limit")
"""Settings that may differ when a run is resumed; any other change would make it another run."""

REPORT_EVERY = 30.0
"""The fewest seconds between two reports of a run in progress."""


def train(layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console) -> None:
    """Train in the folder `path`, resume training there, or say that it is done."""
    config, folder = settle(TrainConfig, layers, path, resume, CHANGEABLE), RunFolder(path)
    begun = folder.has_config
    checkpoints = _checkpoints(folder, config) if begun else []
    if begun and _has_ended(folder, config):
        console.print(f"the run in {path} is done", markup=False)
        if not damaged(folder):  # it may have been killed between its summary and its checksums
            seal(folder)
    else:
        model, data = config.model.path, config.data.train
        console.print(f"setting up {model:.80} on {data:.80}", markup=False)
        if begun and not checkpoints:
            console.print(f"the run in {path} has no checkpoint yet: it starts over", markup=False)
        with LiveReport(path, REPORT_EVERY) as report:
            train_in(folder, config, bool(checkpoints), console, report.step_ended)
    _show_end(folder.read_summary() or {}, console)
    for finding in findings_of(folder):
        console.print(describe_finding(finding), style="yellow")
    console.print(f"report: {write_report(path)}", markup=False)


def _show_end(summary: Mapping[str, Any], console: Console) -> None:
    console.print(summary_table(summary))
    steps = "step" if summary["steps"] == 1 else "steps"
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
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Train a run to its end, from the newest checkpoint with `resume`, and write its summary.

    `after_step` is called when the metrics of a step are recorded.

    Raises:
        KeyboardInterrupt: It was asked to stop, and has a checkpoint to resume from.
    """
    from rollwise.training.loop import train as run_to_end
    from rollwise.training.run import resume_run, start_run

    run = (resume_run if resume else start_run)(config, folder)
    display = TrainingDisplay(
        console,
        lambda: run.expected_steps,
        run.step,
        after_step,
        config.model_dump(mode="json"),
        folder.read_metrics() if resume else (),
    )
    try:
        with run.parts, display:
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
    folder.write_summary(summarize(folder.read_metrics()))
    seal(folder)


def _without_policy(run: "Run", error: PolicyError) -> str:
    """Say at which step a policy broke, and what is left."""
    kept = list_checkpoints(run.folder.checkpoints)
    left = f"the last checkpoint, {kept[-1]}, predates it" if kept else "nothing is saved"
    return (
        f"step {run.step}: {error}; {left}. A lower `learner.learning_rate` (it "
        f"is {run.config.learner.learning_rate:g}) makes smaller updates"
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


def _has_ended(folder: RunFolder, config: TrainConfig) -> bool:
    """Say whether a run has ended where the settings want it to end."""
    recorded = make_config(folder.read_config())
    same_end = all(getattr(recorded, name) == getattr(config, name) for name in ENDS)
    return same_end and folder.read_summary() is not None


def _checkpoints(folder: RunFolder, config: TrainConfig) -> list[Path]:
    """List the checkpoints of a run; refuse settings that differ from those of the newest."""
    found = list_checkpoints(folder.checkpoints)
    for checkpoint in found[-1:]:  # the run's own `config.json` may have been edited since
        whole = not damaged_files(checkpoint, within="run/config.json")  # else it is named later
        if whole and (checkpoint / "run" / "config.json").exists():
            saved = make_config(RunFolder(checkpoint / "run").read_config())
            refuse_changes(checkpoint, saved.model_dump(), config.model_dump(), CHANGEABLE)
    return found
