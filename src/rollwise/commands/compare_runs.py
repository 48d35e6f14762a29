"""Train the runs of a comparison that are missing, each in a process of its own."""

import ctypes
import json
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rollwise.commands.train import CHANGEABLE, train_in
from rollwise.config import TrainConfig, make_config
from rollwise.config.train import ENDS
from rollwise.errors import RunError
from rollwise.files import list_checkpoints, write_text
from rollwise.machine import usable_cores, usable_memory
from rollwise.plugins import objects_in_memory
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
        for number, line in enumerate(read_lines(self._file) if self._file.exists() else [], 1):
            if not _is_whole(line):
                raise RunError(
                    f"{self._file}, line {number}, is broken: it should have the `run`, `settings` "
                    "and `curve` of a run that is done; remove the line to train that run again"
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
        self._lines[run.name] = line
        text = "".join(json.dumps(self._lines[name]) + "\n" for name in sorted(self._lines))
        write_text(self._file, text)


def _is_whole(line: Mapping[str, Any]) -> bool:
    curve = line.get("curve")
    named = isinstance(line.get("run"), str) and isinstance(line.get("settings"), dict)
    return (
        named and isinstance(curve, dict) and {"accuracy", *COSTS} <= {n for n in curve if curve[n]}
    )


def train_missing(runs: Sequence[PlannedRun], records: Records, workers: int) -> Generator[float]:
    """Train the runs that are not recorded, several at a time, each in a process of its own.

    If settings name objects in memory, the runs follow each other in this process.

    Yields from time to time how many runs are done; those under way count in part. Where one fails,
    or a signal comes, the others stop after their step, with a checkpoint.
    """
    missing = [run for run in runs if records.curve(run) is None]
    for folder in (RunFolder(records.path / run.name) for run in missing):
        if not (folder.is_new or list_checkpoints(folder.checkpoints)):
            folder.refuse_to_start_over()  # before any of them is trained
    recorded = len(runs) - len(missing)
    yield recorded
    if objects_in_memory():  # which other processes do not have
        for number, run in enumerate(missing, 1):
            if not _train(records.path / run.name, run.settings):
                raise KeyboardInterrupt
            records.add(run)
            yield recorded + number
        return
    context = multiprocessing.get_context(START)
    threads = max(1, usable_cores() // workers)
    with ProcessPoolExecutor(workers, context, _begin, (os.getpid(), threads)) as pool:
        try:
            for done in _train_in(pool, missing, records, workers):
                yield recorded + done
        except BrokenProcessPool:
            raise RunError(
                "the process of a run died, perhaps out of memory; the same command trains what is "
                "missing (fewer at a time with --workers). A script in Python must call `compare` "
                'under `if __name__ == "__main__":`'
            ) from None
        except BaseException:  # also if a signal ends the caller that asks for these figures
            _stop_runs(pool)
            raise


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
    folder, config = RunFolder(path), make_config(settings)
    resume = bool(list_checkpoints(folder.checkpoints))
    if resume:
        before = make_config(folder.read_config())
        refuse_changes(path, asdict(before), asdict(config), CHANGEABLE)
    try:
        train_in(folder, config, resume, Console(quiet=True))
    except KeyboardInterrupt:
        return False
    return True


def _begin(parent: int, threads: int) -> None:
    """Prepare a process, which on Linux is killed when its parent ends, however that ends.

    Signals end it quietly while it trains nothing; during training, the run handles them.
    """
    release(signal.SIG_DFL)
    logging.getLogger("rollwise").setLevel(logging.WARNING)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read when torch is loaded
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it ended before that
            os.kill(os.getpid(), signal.SIGKILL)


def runs_at_a_time(config: TrainConfig) -> int:
    """Return how many runs fit side by side: one per GPU, or as many as cores and memory allow."""
    import torch

    if torch.cuda.is_available() and config.model.device != "cpu":
        return 1
    cores = usable_cores()
    runs = cores // (config.model.cpu_threads or cores)
    return max(1, min(runs, usable_memory() // MEMORY_OF_A_RUN))
