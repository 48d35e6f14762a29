"""The folder of a run: settings, metrics, samples and summary, written and read back."""

import json
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from rollwise.errors import RunError
from rollwise.files import CHECKSUMS, LOCK, write_checksums, write_text
from rollwise.records.metrics import Row, metrics_line, read_lines

VERSIONS_OF = ("rollwise", "torch", "transformers", "numpy", "safetensors", "math-verify", "peft")
"""Packages whose versions a run's settings record."""

QUESTION_CHARACTERS = 200
"""The most characters of a question in `visits/`."""

log = logging.getLogger(__name__)


def describe_start(device: str) -> dict[str, str]:
    """Say when and where a run starts, on a `device` that is given in words.

    The `commit` is that of the current folder, with `+ changes` if tracked files differ from it;
    without git, none.
    """
    start = {
        "date": datetime.now().astimezone().isoformat(" ", "seconds"),
        "host": platform.node(),
        "device": device,
        "command": typed_command(),
    }
    commit, changes = _git("rev-parse", "--short=12", "HEAD"), _git("diff", "--stat", "HEAD")
    return start | ({"commit": commit + (" + changes" if changes else "")} if commit else {})


def typed_command() -> str:
    """Return the command of this process as it was typed, quoted for a shell."""
    name = Path(sys.argv[0]).name
    return shlex.join(["rollwise" if name == "__main__.py" else name, *sys.argv[1:]])


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


class RunFolder:
    """The folder of one run.

    It holds `config.json` (settings and versions), `metrics.jsonl` (one line for each step; step 0
    is the evaluation before training), `samples/` (responses to some prompts),
    `visits/` (a row for each prompt of each step), `summary.json`, `checkpoints/` and
    `report.html`. Every method raises `RunError`, which names the file, where one is missing or
    broken, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        from rollwise.records.samples import ROWS, StepFiles  # which loads pyarrow

        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics, self._summary = path / "metrics.jsonl", path / "summary.json"
        self._samples = StepFiles(path / "samples", ROWS)
        self._visits = StepFiles(path / "visits", 16 * ROWS)

    @property
    def is_new(self) -> bool:
        """Whether nothing is there, or only what a command that is killed at its start leaves."""
        if not self.path.exists():
            return True
        leftovers = {LOCK, ".config.json.partial"}
        return self.path.is_dir() and all(p.name in leftovers for p in self.path.iterdir())

    @property
    def has_config(self) -> bool:
        """Whether the folder has settings."""
        return (self.path / "config.json").exists()

    def create(self, config: Mapping[str, Any], started: Mapping[str, str] | None = None) -> None:
        """Create the folder of a new run, or of one that was killed before its first checkpoint.

        The metrics and responses of the latter are removed: they will be the same again. A folder
        with anything else is refused.
        """
        if not self.is_new:
            begun = self.has_config and "learner" in self.read_config()
            if not begun or any(self.checkpoints.glob("step-*")):
                raise RunError(f"{self.path} is not empty; give another --output")
            self._metrics.unlink(missing_ok=True)
            (self.path / CHECKSUMS).unlink(missing_ok=True)
            for kept in (self._samples, self._visits):
                shutil.rmtree(kept.folder, ignore_errors=True)
        self.write_config(config, started)

    def write_config(
        self, config: Mapping[str, Any], started: Mapping[str, str] | None = None
    ) -> None:
        """Write `config.json`: all settings, versions, and when and where a run started.

        `started` is what `describe_start` returned; by default the recorded one stays.
        """
        if started is None and self.has_config:
            started = self.read_about("started")
        versions = {"python": platform.python_version()}
        for package in VERSIONS_OF:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        content = {"config": config, "versions": versions}
        self._write_json("config.json", content | ({"started": started} if started else {}))

    def read_config(self) -> dict[str, Any]:
        """Read the settings."""
        recorded: Any = self._read_json("config.json")
        if not isinstance(recorded, dict) or not isinstance(recorded.get("config"), dict):
            raise RunError(f"there is no run in {self.path}: its config.json is not a run's")
        config: dict[str, Any] = recorded["config"]
        return config

    def read_about(self, what: Literal["versions", "started"]) -> dict[str, str]:
        """Read packages' versions, or when and where the run started (`describe_start`)."""
        return dict(self._read_json("config.json").get(what, {}))

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

    def keep_samples(self, rows: Iterable[Row]) -> None:
        """Add responses to `samples/`; those of the last steps are written by `flush_samples`."""
        self._samples.keep(rows)

    def keep_visit(self, step: int, row: Row, question: str) -> None:
        """Add what a step found about a prompt to `visits/`, as `keep_samples` adds responses."""
        short = question[:QUESTION_CHARACTERS]
        self._visits.keep([{"step": step, **row, "question": short}])

    def flush_samples(self) -> None:
        """Write the rows of `samples/` and `visits/` that are in memory.

        All files but the newest are final, and have their checksums in `checksums.txt` from now on.
        """
        self._samples.flush()
        self._visits.flush()
        final = [*self._samples.paths[:-1], *self._visits.paths[:-1]]
        write_checksums(self.path, [path.relative_to(self.path).as_posix() for path in final])

    def read_samples(self) -> list[Row]:
        """Read the responses in `samples/`, in order; none if nothing is written."""
        rows: list[Row] = self._samples.read().to_pylist()
        return rows

    def read_newest_samples(self, most: int) -> tuple[list[Row], int]:
        """Read the newest responses of whole prompts, at most `most`, and count all that exist."""
        table, count = self._samples.read(most), self._samples.count()
        rows: list[Row] = table.slice(max(0, len(table) - most)).to_pylist()
        first = (rows[0]["step"], rows[0]["key"]) if len(rows) < count else None
        whole = [row for row in rows if (row["step"], row["key"]) != first]
        return whole or rows, count

    def read_visits(self) -> Any:
        """Read `visits/` as an Arrow table; None if nothing is written."""
        return self._visits.read() if self._visits.paths else None

    @property
    def missing_parts(self) -> list[str]:
        """The files of `samples/` and `visits/` that must have existed."""
        kinds = self._samples, self._visits
        return [f"{kind.folder.name}/{name}" for kind in kinds for name in kind.missing]

    @property
    def records(self) -> list[Path]:
        """The files that a checkpoint keeps copies of."""
        return [self._metrics, self.path / "config.json"]

    def complete_metrics(self, step: int, saved: Path) -> None:
        """Take the metrics up to `step` from the copy in its checkpoint, if they differ from it.

        An evaluation may have been added to the last of them since.
        """
        kept = read_lines(saved)
        try:
            *before, last = (line for line in self.read_metrics() if line["step"] <= step)
        except (RunError, ValueError):  # ValueError: there is no last line
            before, last = [], {}
        if before == kept[:-1] and (last == kept[-1] or "heldout" in last.keys() - kept[-1]):
            return
        write_text(self._metrics, saved.read_text(encoding="utf-8"))
        log.warning("%s was incomplete: it is restored from the checkpoint", self._metrics)

    def discard_after(self, step: int) -> None:
        """Remove what was written after `step`, to resume from its checkpoint."""
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        self._write_metrics(kept)
        (self.path / CHECKSUMS).unlink(missing_ok=True)
        self._samples.discard_after(step)
        self._visits.discard_after(step)

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
            content: Row = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(
                f"there is no run in {self.path}: cannot read {name} ({error})"
            ) from None
        return content
