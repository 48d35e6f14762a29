"""The run's folder, written from verl's driver."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rollwise.config import TrainConfig
from rollwise.integrations.verl.reports import PromptReport
from rollwise.records import Row, RunFolder
from rollwise.training.metrics import pool_metrics

PHASES = {
    "sampling": ("gen",),
    "log-probabilities": ("old_log_prob", "ref"),
    "learning": ("update_actor",),
    "new weights": ("update_weights",),
}
"""What a step's time went to, in our words and in verl's; grading goes on while sampling does."""


class Recorder:
    """Writes what `rollwise report` reads.

    Args:
        config: rollwise's settings.
        path: The run's folder; None writes nothing.
    """

    def __init__(self, config: TrainConfig, path: str | None) -> None:
        self.folder = RunFolder(Path(path)) if path else None
        self._config = config
        self._began = time.perf_counter()

    def begin(self, step: int, heldout: Row | None, last: Row | None = None) -> None:
        """Begin a run, or go on with one after `step`.

        Args:
            step: The steps done so far.
            heldout: The figures before training, where they were taken.
            last: The metrics of `step`, as its checkpoint has them: a run that was killed right
                after that may not have written them down.
        """
        if self.folder is None:
            return
        if (self.folder.path / "metrics.jsonl").exists():
            self.folder.go_back_to(step if step else -1)
        if not step:
            self.folder.write_config(self._config.model_dump(mode="json"))
            self.step({"step": 0, **({"heldout": heldout} if heldout else {})})
            return
        lines = self.folder.read_metrics()
        self._began -= lines[-1]["elapsed"]
        if last and lines[-1]["step"] < step:
            self.step(last)

    def step(self, metrics: Row) -> None:
        """Write down a step."""
        if self.folder is not None:
            self.folder.log(metrics | {"elapsed": time.perf_counter() - self._began})

    def keep(self, reports: Iterable[PromptReport]) -> None:
        """Remember the responses of a step that are to be recorded."""
        if self.folder is not None:
            self.folder.keep_samples(row for report in reports for row in report.records)

    def flush(self) -> None:
        """Write out the responses kept so far; for every checkpoint, and the end."""
        if self.folder is not None:
            self.folder.flush_samples()


def step_metrics(
    reports: Sequence[PromptReport], failed: int, settings: TrainConfig
) -> dict[str, Any]:
    """Summarise a step's reports as the built-in trainer does its pools.

    Args:
        reports: One for each prompt that was sampled.
        failed: Prompts that were not, for an error.
        settings: Of the run.
    """
    threshold = settings.grading.positive_threshold
    metrics = pool_metrics(
        [report.pool(threshold) for report in reports],
        [figures for report in reports for figures in report.first_draws],
        uniform_groups=[report.uniform_group for report in reports],
        trained_groups=sum(not report.dropped for report in reports),
        first=settings.group.size,
        schedule=settings.schedule.make(),
        surplus=sum(report.surplus for report in reports),
        failures=sum(report.failures for report in reports),
        lost=sum(report.lost for report in reports),
        tokens=sum(report.tokens for report in reports),
    )
    return metrics | {"failed_prompts": failed}


def seconds(timing: dict[str, float]) -> Row:
    """Sum up verl's timings of a step by phase."""
    return {phase: sum(timing.get(name, 0.0) for name in names) for phase, names in PHASES.items()}
