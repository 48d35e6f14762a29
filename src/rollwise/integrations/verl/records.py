"""The run's folder, as verl's driver writes it."""

import time
from dataclasses import asdict
from pathlib import Path

from rollwise.config import TrainConfig
from rollwise.records import Row, RunFolder

PHASES = {
    "sampling": ("gen",),
    "log-probabilities": ("old_log_prob", "ref"),
    "learning": ("update_actor",),
    "new weights": ("update_weights",),
}
"""Where a step's time went: our names, and verl's. Grading runs while sampling does."""


class Recorder:
    """Writes the files that `rollwise report` reads."""

    def __init__(self, config: TrainConfig, path: str) -> None:
        self.folder = RunFolder(Path(path))
        self._config, self._logged = config, -1
        self._began = time.perf_counter()

    def begin(self, step: int, heldout: Row | None) -> None:
        """Start a run, with the figures before training, or resume one after `step`."""
        if (self.folder.path / "metrics.jsonl").exists():
            self.folder.discard_after(step if step else -1)
        if step:
            self._began -= self.folder.read_metrics()[-1]["elapsed"]
            return
        self.folder.write_config(asdict(self._config))
        self.step({"step": 0, **({"heldout": heldout} if heldout else {})})

    def step(self, metrics: Row) -> None:
        """Log a step, or replace what was logged of it when its checkpoint was written."""
        line = metrics | {"elapsed": time.perf_counter() - self._began}
        write = self.folder.replace_last if metrics["step"] == self._logged else self.folder.log
        write(line)
        self._logged = metrics["step"]


def seconds(timing: dict[str, float]) -> Row:
    """Add up verl's timings of a step by phase."""
    return {phase: sum(timing.get(name, 0.0) for name in names) for phase, names in PHASES.items()}
