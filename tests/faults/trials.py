"""What faults are tried on: whole commands with the smallest settings, and what they come to.

Every choice follows from a seed, which is printed, and every trial is counted in the table at the
end: `scripts/test_faults.sh` chooses both.
"""

import contextlib
import json
import os
import shutil
from collections import Counter
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from forked import Command

SEED = int(os.environ.get("FAULTS_SEED", "0"))
TIMES = int(os.environ.get("FAULTS_TIMES", "2"))
"""How often each fault is tried."""

MOST_STARTS = 200
"""A command that is not done after so many is stuck."""

TRAIN = """
method = "reinforce_ada"
steps = 3
prompts = {batch_size = 2}
data = {problems = 16, max_terms = 3}
engine = {max_new_tokens = 8}
schedule = {size = 2, rounds = 2}
exit = {positives = 1, negatives = 1}
group = {size = 2}
evaluation = {problems = 4, samples = 1, every = 2}
checkpoint = {every = 1}
"""
DRAWING = """
samples = 2
portion = 2
data = {problems = 8}
engine = {max_new_tokens = 8}
"""
COMPARE = """
steps = 2
seeds = 1
evaluations = 1
[base]
method = "grpo"
prompts = {batch_size = 2}
data = {problems = 16, max_terms = 3}
engine = {max_new_tokens = 8}
evaluation = {problems = 4, samples = 1}
checkpoint = {every = 1}
[methods.one]
exit = {samples = 2}
[methods.two]
exit = {samples = 3}
"""
SETTINGS = {"train": TRAIN, "evaluate": DRAWING, "prepare": DRAWING, "compare": COMPARE}

EPISODES = TRAIN.replace("data = {", 'data = {train = "tool-sums", ').replace("= 8", "= 24")
FURTHER = {"train of episodes": EPISODES}
"""Other ways of a command, whose name is the first word."""

TALLY: Counter[str] = Counter()
"""How often each fault was tried; a test fails if anything was lost."""


class Trial:
    """One command in a folder, which is started again and again until it is done.

    It may have further settings; plug-ins are looked for beside this file.
    """

    def __init__(self, name: str, place: Path, **further: object):
        self.name, self.place, self.folder = name, place, place / "run"
        self.options = [word for key, value in further.items() for word in (f"--{key}", f"{value}")]
        if further:
            self.options += ["--plugin_folder", str(Path(__file__).parent)]
        place.mkdir(exist_ok=True)
        self._settings = place / "settings.toml"
        self._settings.write_text((SETTINGS | FURTHER)[name])
        self.shown = place / "shown"

    @property
    def words(self) -> list[str]:
        """The command line."""
        command = self.name.split()[0]
        return [command, str(self._settings), "--output", str(self.folder), *self.options]

    def start(self) -> Command:
        """Start it in a process of its own."""
        return Command(*self.words, shown=self.shown)

    def finish(self) -> None:
        """Start it, until it ends by itself."""
        code, shown = self.start().end()
        assert code == 0, shown

    def result(self) -> dict:
        """All that it came to: times and resumptions apart, and what a checkpoint copies."""
        return {
            str(path.relative_to(self.folder)): _content(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.match("step-*/run/*")
        }


def _content(path: Path):
    """What is compared of a file; its bytes where it is damaged, because nothing reads it."""
    with contextlib.suppress(OSError, ValueError, pa.ArrowException):
        if path.name in ("metrics.jsonl", "curves.jsonl"):
            return [_without(json.loads(line), TIMED) for line in path.read_text().splitlines()]
        if path.name in ("summary.json", "config.json"):
            return _without(json.loads(path.read_text()), TIMED)
        if path.parent.name in ("samples", "visits"):
            return pq.read_table(path).to_pylist()
        if path.suffix in (".html", ".md", ".txt", ".csv") or path.name == "comparison.json":
            return "there"  # with times in it
    return path.read_bytes()


TIMED = ("elapsed", "started", "resumed", "checksum", "seconds")


def processor_seconds() -> float:
    """Return what all processes that were started here and have ended have used."""
    used = os.times()
    return used.children_user + used.children_system


def copy_of(trial: Trial, place: Path) -> Trial:
    """Copy a trial with its folder."""
    copied = Trial(trial.name, place)
    if trial.folder.exists():
        shutil.copytree(trial.folder, copied.folder)
    return copied


def alike(trial: Trial, wanted) -> list[str]:
    """Name the files that are not as in a command that was left alone."""
    return _different(trial.result(), wanted(trial.name)[0])


def unlike(trial: Trial, best: dict) -> list[str]:
    """Name the files that have another content, settings and counts of failures apart."""
    return _different(_work(trial.result()), _work(best))


def _different(found: dict, best: dict) -> list[str]:
    return sorted(name for name in found | best if found.get(name) != best.get(name))


def _work(result: dict) -> dict:
    work = {n: part for n, part in result.items() if not n.endswith(("config.json", ".txt"))}
    for name in work:
        if name == "prepared.parquet" or name.startswith("problems"):  # with the settings noted
            work[name] = pq.read_table(BytesIO(work[name])).to_pylist()
    return {name: _without(part, ("fail",)) for name, part in work.items()}


def _without(value, words):
    """Leave out what stands, at any depth, under names that hold one of some words."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not any(word in k for word in words)}
        return {k: _without(v, words) for k, v in kept.items()}
    return [_without(part, words) for part in value] if isinstance(value, list) else value
