"""The run's folder, as verl's driver writes it."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from rollwise.config import TrainConfig
from rollwise.integrations.verl.reports import PromptReport
from rollwise.records import Row, RunFolder
from rollwise.step import StepRecipe, TrainedGroup
from rollwise.step.ledger import StepTotals
from rollwise.step.metrics import group_metrics

PHASES = {
    "sampling": ("gen",),
    "log-probabilities": ("old_log_prob", "ref"),
    "learning": ("update_actor",),
    "new weights": ("update_weights",),
}
"""Where a step's time went: our names, and verl's. Grading runs while sampling does."""


class Recorder:
    """Writes the files that `rollwise report` reads.

    Args:
        config: rollwise's settings.
        path: The run's folder.
    """

    def __init__(self, config: TrainConfig, path: str) -> None:
        self.folder = RunFolder(Path(path))
        self._config = config
        self._began = time.perf_counter()

    def begin(self, step: int, heldout: Row | None, last: Row | None = None) -> None:
        """Start a run, or resume one after `step`.

        Args:
            step: The steps done so far.
            heldout: The figures before training, if they were measured.
            last: The metrics of `step` from its checkpoint, which a killed run may lack.
        """
        if (self.folder.path / "metrics.jsonl").exists():
            self.folder.discard_after(step if step else -1)
        if not step:
            self.folder.write_config(self._config.model_dump(mode="json"))
            self.step({"step": 0, **({"heldout": heldout} if heldout else {})})
            return
        lines = self.folder.read_metrics()
        self._began -= lines[-1]["elapsed"]
        if last and lines[-1]["step"] < step:
            self.step(last)

    def step(self, metrics: Row) -> None:
        """Log a step."""
        self.folder.log(metrics | {"elapsed": time.perf_counter() - self._began})

    def keep(
        self, step: int, samples: Iterable[Row], visits: Iterable[Row], questions: Iterable[str]
    ) -> None:
        """Keep the responses to be recorded, and what a step found of each of its prompts.

        They are written by `folder.flush_samples`.
        """
        self.folder.keep_samples(row | {"step": step} for row in samples)
        for row, question in zip(visits, questions, strict=True):
            self.folder.keep_visit(step, row, question)


def step_metrics(
    reports: Sequence[PromptReport],
    groups: Sequence[TrainedGroup],
    failed: Collection[int],
    recipe: StepRecipe,
) -> dict[str, Any]:
    """Summarise a step's groups as the other trainers do.

    Args:
        reports: One for each prompt that was sampled.
        groups: Of these prompts, in the same order.
        failed: The lost draws of each prompt whose sampling failed.
        recipe: Of the step.
    """
    totals = StepTotals(
        tokens=sum(report.tokens for report in reports),
        surplus=sum(report.surplus for report in reports),
        failures=sum(report.failures for report in reports),
        lost=sum(report.lost for report in reports) + sum(failed),
        failed_tokens=sum(report.failed_tokens for report in reports),
        ends=sum((Counter(report.ends) for report in reports), Counter()),
    )
    metrics = group_metrics(groups, recipe.group_size, recipe.resolved_schedule, totals)
    return metrics | {"failed_prompts": len(failed)}


def age_metrics(
    reports: Sequence[PromptReport],
    left_out: Sequence[PromptReport],
    metrics: Row,
    step: int,
    under_way: int,
) -> Row:
    """Say how old the responses of a step of an asynchronous trainer are (docs/verl.md).

    Args:
        reports: One for each prompt that the step has used.
        left_out: Of prompts that were left out because they were too old.
        metrics: Of `step_metrics`, for `reports`; what was left out is added to its counts.
        step: The number of the step.
        under_way: Prompts that are asked, and that no step has used yet.
    """
    ages = [age for report in reports for age in report.ages(step)]
    weights = [pair for report in reports for pair in report.weights]
    wasted = sum(len(report.rewards) + report.stale for report in left_out)
    wasted += sum(report.stale for report in reports)
    surplus = sum(report.surplus for report in left_out)
    return {
        "steps_off_policy": max(ages, default=0),
        "steps_off_policy_mean": sum(ages) / max(len(ages), 1),
        "interrupted_draws": sum(first != last for first, last in weights),
        "stale_draws": wasted,
        "stale_prompts": len(left_out),
        "prompts_under_way": under_way,
        "draws": metrics["draws"] + wasted + surplus,
        "surplus_draws": metrics["surplus_draws"] + surplus,
        "lost_draws": metrics["lost_draws"] + sum(report.lost for report in left_out),
        "tokens": metrics["tokens"] + sum(report.tokens for report in left_out),
    }


def seconds(timing: dict[str, float]) -> Row:
    """Add up verl's timings of a step by phase."""
    return {phase: sum(timing.get(name, 0.0) for name in names) for phase, names in PHASES.items()}
