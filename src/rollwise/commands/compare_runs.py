"""Train the runs of a comparison that are missing, each in a process of its own."""

import ctypes
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rollwise.commands.train import CHANGEABLE, train_in
from rollwise.config import TrainConfig, make_config
from rollwise.config.train import ENDS
from rollwise.errors import RunError
from rollwise.files import list_checkpoints, write_text
from rollwise.records import RunFolder, flatten, read_lines, refuse_changes
from rollwise.signals import held_back, release
from rollwise.statistics.curves import COSTS, Curve, spent_until_each

START = "spawn"
"""How processes of runs are started: torch may have threads, which a fork would lose."""

RECORDS = "curves.jsonl"
"""The file in the folder of a comparison with the curves of the runs that are done."""

SECONDS_BETWEEN_LOOKS = 2.0
"""Seconds between two looks at how far the runs under way are."""

MEMORY_OF_A_RUN = 2 * 2**30
"""Bytes of memory to allow for a run, when deciding how many run at a time."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a comparison: its folder within the comparison's, and its given settings."""

    name: str
    settings: Mapping[str, Any]


class Records:
    """The curves of the runs that are done, in the folder of a comparison.

    A run that is recorded is not repeated, even if its own folder is gone.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, path / RECORDS
        self._lines: dict[str, dict[str, Any]] = {}
        lines = read_lines(self._file) if self._file.exists() else []
        for number, line in enumerate(lines, 1):
            if not _is_whole(line):
                raise RunError(
                    f"{self._file}, line {number}, is broken: it should have the `run`, "
                    "`settings` and `curve` of a run that is done, as they were written; "
                    "remove the line to train that run again"
                )
            self._lines[line["run"]] = line

    def curve(self, run: PlannedRun) -> Curve | None:
        """Return the curve of a run; None if it is not recorded, or was of another length."""
        line = self._lines.get(run.name)
        if line is None:
            return None
        refuse_changes(self.path / run.name, line["settings"], run.settings, CHANGEABLE)
        if flatten(line["settings"], ".") != flatten(run.settings, "."):
            return None
        return replace(Curve.from_json(line["curve"]), folder=self.path / run.name)

    def check(self, length: Mapping[str, Any]) -> None:
        """Refuse a `length` of all runs that is below a recorded one, or evaluates it elsewhere."""
        wanted = flatten(length, ".")
        for line in [own for name, own in self._lines.items() if name.startswith("runs/")]:
            had = {key: flatten(line["settings"], ".").get(key) for key in wanted}
            changed = [key for key in wanted if had[key] != wanted[key]]
            for key in changed[:1]:
                if key not in ENDS or had[key] is None or had[key] > wanted[key]:
                    raise RunError(
                        f"`{key}` of the runs in {self.path} is {had[key]}, and would be "
                        f"{wanted[key]}: runs can only become longer; give another --output"
                    )

    def add(self, run: PlannedRun) -> None:
        """Record a run that is done."""
        curve = Curve.of_metrics(RunFolder(self.path / run.name).read_metrics())
        line = {"run": run.name, "settings": run.settings, "curve": curve.as_json()}
        self._lines[run.name] = line | {"checksum": _checksum(line)}
        text = "".join(json.dumps(self._lines[name]) + "\n" for name in sorted(self._lines))
        write_text(self._file, text)


def _is_whole(line: Mapping[str, Any]) -> bool:
    try:
        curve = Curve.from_json(line["curve"])
        named = isinstance(line["run"], str) and isinstance(line["settings"], dict)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    whole = named and len(curve.accuracy) > 0 and {*COSTS} <= curve.costs.keys()
    return whole and line.get("checksum", _checksum(line)) == _checksum(line)


def _checksum(line: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of a run's settings and curve, as they read in JSON."""
    parts = json.dumps([line[name] for name in ("run", "settings", "curve")], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def train_missing(runs: Sequence[PlannedRun], records: Records, workers: int) -> Generator[float]:
    """Train the runs that are not recorded, several at a time, each in a process of its own.

    Yields from time to time how many runs are done; those under way count in part. Where one fails,
    or a signal comes, the others stop after their step, with a checkpoint.
    """
    missing = [run for run in runs if records.curve(run) is None]
    recorded = len(runs) - len(missing)
    yield recorded
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    context = multiprocessing.get_context(START)
    try:
        with ProcessPoolExecutor(workers, context, _end_with_parent, (os.getpid(),)) as pool:
            try:
                for done in _train_in(pool, missing, records, workers):
                    yield recorded + done
            except BrokenProcessPool:
                raise RunError(
                    "the process of a run died, perhaps out of memory; the same command "
                    "trains what is missing (fewer at a time with --workers)"
                ) from None
            except BaseException:  # also if a signal ends the caller that asks for these figures
                _stop_runs(pool)
                raise
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]


def _train_in(
    pool: ProcessPoolExecutor, runs: Sequence[PlannedRun], records: Records, workers: int
) -> Iterator[float]:
    """Train runs, starting no more than there are workers; yield how many are done."""
    waiting, left = list(runs), dict[Future[bool], PlannedRun]()
    while waiting or left:
        while waiting and len(left) < workers:
            run = waiting.pop(0)
            with held_back():  # a process may start here
                left[pool.submit(_train, records.path / run.name, run.settings)] = run
        ended, _ = wait(left, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
        for future in ended:
            if not future.result():
                raise KeyboardInterrupt
            records.add(left.pop(future))
        under_way = sum(share_done(records.path, run) for run in left.values())
        yield len(runs) - len(waiting) - len(left) + under_way


def share_done(path: Path, run: PlannedRun) -> float:
    """Estimate how much of a run is done, 0 to 1, by the steps, tokens or seconds it has spent."""
    try:
        *_, spent = spent_until_each(RunFolder(path / run.name).read_metrics())
    except RunError:  # it has not begun
        return 0.0
    budget = next(name for name in ENDS if run.settings.get(name))
    return float(min(1.0, spent[budget] / run.settings[budget]))


def _stop_runs(pool: ProcessPoolExecutor) -> None:
    """Let each run under way stop after its step, with a checkpoint; Ctrl-C ends them at once.

    The signal is sent until they have ended: a process that is done with its run waits for another
    one, and it may wait for a lock that a process held when it died. A run takes the signal once.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    try:
        while left := multiprocessing.active_children():
            for process in left:
                process.terminate()
            left[0].join(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.kill()
        raise


def _train(path: Path, settings: Mapping[str, Any]) -> bool:
    """Train one run from the start or its checkpoint, or extend it if it is longer now."""
    logging.getLogger("rollwise").setLevel(logging.WARNING)
    folder, config = RunFolder(path), make_config(settings)
    resume = bool(list_checkpoints(folder.checkpoints))
    if resume:
        before = make_config(folder.read_config())
        refuse_changes(path, before.model_dump(), config.model_dump(), CHANGEABLE)
    elif path.exists():
        shutil.rmtree(path)  # it was killed before its first checkpoint
    try:
        train_in(folder, config, resume, Console(quiet=True))
    except KeyboardInterrupt:
        return False
    return True


def _end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, however that ends (Linux).

    Signals end it quietly while it trains nothing; during training, the run handles them.
    """
    release(signal.SIG_DFL)
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before that
        os.kill(os.getpid(), signal.SIGKILL)


def runs_at_a_time(config: TrainConfig) -> int:
    """Say how many runs fit side by side: one per GPU, or as many as cores and memory allow."""
    import torch

    if torch.cuda.is_available() and config.model.device != "cpu":
        return 1
    cores = (os.cpu_count() or 1) // (config.model.cpu_threads or os.cpu_count() or 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_OF_A_RUN
    return max(1, min(cores, memory))
