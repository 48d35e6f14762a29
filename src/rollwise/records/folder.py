"""The folder of a run: settings, metrics, samples and summary, written and read back."""

import hashlib
import json
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rollwise.errors import RunError
from rollwise.files import CHECKSUMS, LOCK, write_text
from rollwise.records.metrics import Row, flatten, metrics_line, read_lines

VERSIONS_OF = ("rollwise", "torch", "transformers", "numpy", "safetensors", "math-verify", "peft")
"""Packages whose versions a run's settings record."""

INPUTS = "inputs"
"""In the folder of a command that was called from Python: rows and sources that it was given."""

INITIAL_MODEL = "initial_model"
"""In such a folder: the model that was given as an object."""

log = logging.getLogger(__name__)


def describe_start(device: str) -> dict[str, str]:
    """Return when and where a run starts, on which `device`, and by which commit, if any."""
    start = {
        "date": datetime.now().astimezone().isoformat(" ", "seconds"),
        "host": platform.node(),
        "device": device,
        "command": typed_command(),
    }
    describe = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        found = subprocess.run(describe, capture_output=True, text=True, timeout=10)
        if commit := found.stdout.strip():
            start["commit"] = commit
    return start


def typed_command() -> str:
    """Return the command of this process as it was typed, quoted for a shell."""
    name = Path(sys.argv[0]).name
    if name == "ipykernel_launcher.py":
        return "a notebook"
    return shlex.join(["rollwise" if name == "__main__.py" else name, *sys.argv[1:]])


class RunFolder:
    """The folder of one run.

    It holds `config.json` (settings and versions), `metrics.jsonl` (one line for each step; step 0
    is the evaluation before training), `samples/` (responses to some prompts), `visits/` (a row for
    each prompt of each step), `summary.json`, `checkpoints/` and `report.html`. A `RunError` names
    a file that is missing or broken, or cannot be written. `samples` and `visits` write what they
    are given when it is much, and at `flush_samples`.
    """

    def __init__(self, path: Path) -> None:
        from rollwise.records.samples import ROWS, StepFiles  # which loads pyarrow

        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics, self._summary = path / "metrics.jsonl", path / "summary.json"
        self.samples = StepFiles(path / "samples", ROWS)
        self.visits = StepFiles(path / "visits", 16 * ROWS)

    @property
    def is_new(self) -> bool:
        """Whether nothing is there, or only what a command that is killed at its start leaves."""
        leftovers = {LOCK, ".config.json.partial", INPUTS, INITIAL_MODEL}
        there = {p.name for p in self.path.iterdir()} if self.path.is_dir() else set[str]()
        return not self.path.exists() or (self.path.is_dir() and there <= leftovers)

    @property
    def has_config(self) -> bool:
        """Whether the folder has settings."""
        return (self.path / "config.json").exists()

    def create(self, config: Mapping[str, Any], **about: Mapping[str, Any]) -> None:
        """Create the folder of a new run, or of one that was killed before its first checkpoint.

        The metrics and responses of the latter are removed: they will be the same again. A folder
        with anything else is refused.
        """
        if not self.is_new:
            self.refuse_to_start_over()
            self._metrics.unlink(missing_ok=True)
            (self.path / CHECKSUMS).unlink(missing_ok=True)
            for kept in (self.samples, self.visits):
                shutil.rmtree(kept.folder, ignore_errors=True)
        self.write_config(config, **about)

    def refuse_to_start_over(self) -> None:
        """Refuse a folder in use, unless its run was killed before its first checkpoint was due."""
        config = self.read_config() if self.has_config else {}
        if "learner" not in config or any(self.checkpoints.glob("step-*")):
            raise RunError(f"{self.path} is not empty; give another --output")
        lines = read_lines(self._metrics) if self._metrics.exists() else []
        done, every = max(0, len(lines) - 1), flatten(config, ".").get("checkpoint.every")
        if self._summary.exists() or 0 < (every or 0) < done:
            raise RunError(
                f"the run in {self.path} has done {done:,} steps, and has no checkpoint to go on "
                f"from: put {self.checkpoints} back, or move the run's folder away to train it "
                "again; nothing was changed"
            )

    def write_config(self, config: Mapping[str, Any], **about: Any) -> None:
        """Write `config.json`: settings, versions, and what else is known of the run.

        That is how it `started`, hashes of what it `read`, and the list of when and by which
        command it was `resumed`; what is not given stays as it was.
        """
        names = ("started", "read", "resumed")
        known = {name: self.read_about(name) for name in names if self.has_config}
        installed = {found.name: found.version for found in metadata.distributions()}
        versions = {"python": platform.python_version()}
        versions |= {name: installed[name] for name in VERSIONS_OF if name in installed}
        about = {name: value for name, value in (known | about).items() if value}
        recorded = {"config": config, "checksum": _checksum(config), "versions": versions, **about}
        self._write_json("config.json", recorded)

    def read_config(self) -> dict[str, Any]:
        """Read the settings."""
        recorded = self._read_json("config.json")
        if not isinstance(recorded.get("config"), dict):
            raise RunError(f"there is no run in {self.path}: its config.json is not a run's")
        if recorded.get("checksum", _checksum(recorded["config"])) != _checksum(recorded["config"]):
            raise RunError(
                f"{self.path}: config.json was modified since a command wrote it; restore it, or "
                "give another --output"
            )
        config: dict[str, Any] = recorded["config"]
        return config

    def read_about(self, what: str) -> Any:
        """Read the `versions` of packages, or what else `write_config` was given; {} without it."""
        found = self._read_json("config.json").get(what)
        return found if isinstance(found, dict | list) else {}

    def log(self, metrics: Row) -> None:
        """Append a line to `metrics.jsonl`, synced to disk; NaN and infinity become null."""
        try:
            with self._metrics.open("a", encoding="utf-8") as file:
                file.write(metrics_line(metrics))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"could not write {self._metrics}: {error}") from error

    def replace_last(self, metrics: Row) -> None:
        """Replace the last line of `metrics.jsonl`."""
        self._write_metrics([*self.read_metrics()[:-1], metrics])

    def read_metrics(self) -> list[Row]:
        """Read all lines of `metrics.jsonl`, at least one, except one cut off at the end."""
        path = self._metrics
        if not path.exists():
            raise RunError(
                f"there is no {path}: the run has not begun, or the folder is of another command "
                "than `rollwise train`"
            )
        rows = read_lines(path)
        if not rows:
            raise RunError(f"{path} holds no metrics")
        for number, row in enumerate(rows, 1):
            if not isinstance(row.get("step"), int):
                raise RunError(f"{path}, line {number}, is broken: it has no integer `step`")
        return rows

    def keep_visit(self, step: int, row: Row, question: str) -> None:
        """Add what a step found about a prompt to `visits`."""
        self.visits.keep([{"step": step, **row, "question": question[:200]}])

    def flush_samples(self) -> None:
        """Write the rows of `samples` and `visits` that are in memory."""
        self.samples.flush()
        self.visits.flush()

    def read_newest_samples(self, most: int) -> tuple[list[Row], int]:
        """Read the newest responses of whole prompts, at most `most`, and count all that exist."""
        table, count = self.samples.read(most), self.samples.count()
        rows: list[Row] = table.slice(max(0, len(table) - most)).to_pylist()
        first = (rows[0]["step"], rows[0]["key"]) if len(rows) < count else None
        whole = [row for row in rows if (row["step"], row["key"]) != first]
        return whole or rows, count

    @property
    def records(self) -> list[Path]:
        """The files that a checkpoint keeps copies of."""
        return [self._metrics, self.path / "config.json"]

    def discard_after(self, step: int, saved: Path | None = None) -> None:
        """Remove what was written after `step`, to resume from its checkpoint.

        Metrics become those of `saved`, the checkpoint's copy, if there is one; but an evaluation
        may have been added to the last line since.
        """
        try:
            lines = [line for line in self.read_metrics() if line["step"] <= step]
        except RunError:
            if saved is None:
                raise
            lines = []
        if saved is not None:
            *before, last = read_lines(saved)
            if lines and lines[-1]["step"] == last["step"] and "heldout" in lines[-1].keys() - last:
                last = lines[-1]
            if lines != [*before, last]:
                lines = [*before, last]
                log.warning("%s was incomplete: it is restored from the checkpoint", self._metrics)
        self._write_metrics(lines)
        (self.path / CHECKSUMS).unlink(missing_ok=True)
        self.samples.discard_after(step)
        self.visits.discard_after(step)

    def write_summary(self, summary: Row) -> None:
        """Write `summary.json`, which says that a run has ended."""
        self._write_json("summary.json", summary)

    def read_summary(self) -> Row | None:
        """Read `summary.json`; None if there is none."""
        return self._read_json("summary.json") if self._summary.exists() else None

    def remove_summary(self) -> None:
        """Remove `summary.json`, because the run is continued."""
        self._summary.unlink(missing_ok=True)

    def _write_metrics(self, lines: Iterable[Row]) -> None:
        write_text(self._metrics, "".join(map(metrics_line, lines)))

    def _write_json(self, name: str, content: Row) -> None:
        write_text(self.path / name, json.dumps(content, indent=2) + "\n")

    def _read_json(self, name: str) -> Row:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(
                f"there is no run in {self.path}: cannot read {name} ({error})"
            ) from None
        return content if isinstance(content, dict) else {}


def _checksum(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
