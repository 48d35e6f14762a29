"""`rollwise compare`: train methods with several seeds, and say what the differences are worth."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rollwise.commands.compare_runs import (
    RECORDS,
    PlannedRun,
    Records,
    runs_at_a_time,
    train_missing,
)
from rollwise.commands.folder import read_again, resolve, seal, write_settings
from rollwise.commands.plan import compare_rewards
from rollwise.commands.show import (
    comparison_tables,
    in_words,
    methods_in_words,
    progress,
    say,
    show,
    write_figures,
)
from rollwise.config import CompareConfig, make_config, make_settings
from rollwise.config.compare import FIRST_OF_CHOOSING
from rollwise.errors import ConfigError, RunError
from rollwise.plugins import objects_in_memory
from rollwise.records import RunFolder, typed_command
from rollwise.reports.methods import write_comparison_report
from rollwise.statistics.curves import Comparison, Curve, Curves, compare_methods

Values = Mapping[str, Any]
"""Settings of a method: full name -> value."""

Runs = Mapping[tuple[Any, ...], PlannedRun]

Train = Callable[[str, Runs], dict[Any, Curve]]
"""Trains runs, after a line on what they are for; returns the curve of each."""


def compare(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> None:
    """Train what is missing, or replay rewards, and compare, in the folder `path`."""
    config = _settings(layers, path, resume)
    if config.rewards is not None:
        compare_rewards(config, config.rewards, path, console)
        return
    records = Records(path)
    records.check(config.length(1.0, config.evaluations))
    for method in config.compared:
        for values in config.candidates(method):
            records.curve(_planned(config, method, 0, values))  # which refuses other settings
    write_settings(path, config, _read(config, path, console))
    say(console, methods_in_words(config.each()))
    comparison = _compared(config, records, console)
    tables, words = comparison_tables(comparison), list(in_words(comparison))
    show(console, tables)
    say(console, words)
    content = {
        "baseline": comparison.baseline,
        "target": comparison.target,
        "chosen": comparison.chosen,
        "methods": {
            name: asdict(result) | {"verdict": result.verdict}
            for name, result in comparison.results.items()
        },
        "runs": {
            name: {seed: curve.as_json() for seed, curve in sorted(curves.items())}
            for name, curves in comparison.curves.items()
        },
    }
    write_figures(path / "comparison", content, tables, words)
    seal(path)
    say(console, [f"report: {_write_report(path, config, comparison, typed_command())}"])


def write_report_again(path: Path) -> Path:
    """Write the report of a finished comparison from the curves that its folder holds."""
    config = make_settings(CompareConfig, RunFolder(path).read_config())
    if config.rewards is not None:
        raise RunError(f"{path} replays rewards: see comparison.md there, it has no report.html")
    return _write_report(path, config, _compared(config, Records(path), None))


def _compared(config: CompareConfig, records: Records, console: Console | None) -> Comparison:
    """Compare methods; without a console, nothing is trained."""
    train = partial(_train, config, records, console)
    chosen = _choose_settings(config, train)
    curves = _train_all(config, chosen, train)
    baseline = config.baseline or next(iter(curves))
    return compare_methods(curves, baseline, config.target, chosen)


def _settings(layers: Sequence[Mapping[str, Any]], path: Path, resume: bool) -> CompareConfig:
    """Resolve the settings, and check the folder and the settings of every run."""
    if (path / RECORDS).exists() and not (resume or RunFolder(path).has_config):
        config = make_settings(CompareConfig, *layers)
    else:
        config = resolve(CompareConfig, layers, path, resume)
    config.check_methods()
    names = [file_name(method) for method in config.compared]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of `methods` have the same folder name: {', '.join(names)}")
    return config


def _read(config: CompareConfig, path: Path, console: Console) -> dict[str, Values]:
    """Return fingerprints of what the runs read: runs with other problems cannot be compared."""
    from rollwise.training.data import fingerprints, read_both

    found: dict[str, Values] = {}
    only = attrgetter("data", "evaluation", "model", "grading")
    each = {repr(only(one)): one for one in config.each().values()}
    for one in each.values():
        if read := read_again(partial(read_both, one), RunFolder(path).has_config, console):
            found |= fingerprints(one, read)
    # Columns are read where a method's belief learns from them.
    return {what: {k: v for k, v in of.items() if k != "columns"} for what, of in found.items()}


def _choose_settings(config: CompareConfig, train: Train) -> dict[str, Values]:
    """Find the values with which each method is best, by successive halving on seeds of their own.

    Every candidate is tried with the first seed; the better half of each method's with the next
    one, and so on. The best mean held-out accuracy decides.
    """
    alive = {method: config.candidates(method) for method in config.compared}
    ends: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(1, config.choosing.seeds + 1):
        seed = FIRST_OF_CHOOSING + number - 1
        runs = {
            (method, str(values)): PlannedRun(
                f"choosing/{_folder(method, values)}/seed-{seed}",
                config.run_settings(method, seed, values, choosing=True),
            )
            for method, candidates in alive.items()
            for values in (candidates if len(candidates) > 1 else ())
        }
        for name, curve in train(f"Choosing settings, seed {number}", runs).items():
            ends[name].append(curve.end)
        for method, candidates in alive.items():
            sums = [sum(ends[method, str(values)]) for values in candidates]
            best = [candidates[place] for place in np.argsort(sums)[::-1]]
            alive[method] = best[: 1 if number == config.choosing.seeds else (len(best) + 1) // 2]
    return {method: candidates[0] for method, candidates in alive.items()}


def _train_all(
    config: CompareConfig, chosen: Mapping[str, Values], train: Train
) -> dict[str, Curves]:
    runs = {
        (method, seed): _planned(config, method, seed, chosen[method])
        for seed in range(max(map(config.seeds_of, config.compared)))
        for method in config.compared
        if seed < config.seeds_of(method)
    }
    found = train("Training", runs)
    return {m: {s: found[m, s] for s in range(config.seeds_of(m))} for m in config.compared}


def _planned(config: CompareConfig, method: str, seed: int, values: Values) -> PlannedRun:
    settings = config.run_settings(method, seed, values)
    return PlannedRun(f"runs/{_folder(method, values)}/seed-{seed}", settings)


def _train(
    config: CompareConfig, records: Records, console: Console | None, what: str, runs: Runs
) -> dict[Any, Curve]:
    """Train what is missing of some runs; returns the curve of each."""
    planned = list(runs.values())
    missing = sum(records.curve(run) is None for run in planned)
    if missing and console is None:
        raise RunError(
            f"the comparison in {records.path} is not finished; the same command resumes it"
        )
    if missing and console is not None:
        workers = config.workers or runs_at_a_time(make_config(planned[0].settings))
        workers = 1 if objects_in_memory() else min(workers, len(planned))
        console.print(
            f"{what}: {missing} of {len(planned)} runs to do, {min(workers, missing)} at a time"
        )
        with (
            progress(console, what, len(planned), "runs") as advance,
            closing(train_missing(planned, records, workers)) as states,
        ):
            before = 0.0
            for done in states:
                advance(done - before)
                before = done
    curves = ((name, records.curve(run)) for name, run in runs.items())
    return {name: curve for name, curve in curves if curve}


def _write_report(
    path: Path, config: CompareConfig, comparison: Comparison, command: str = ""
) -> Path:
    made = config.each(comparison.chosen)
    configs = {name: asdict(each) for name, each in made.items()}
    tables, words = comparison_tables(comparison), list(in_words(comparison))
    return write_comparison_report(path, comparison, words, tables, configs, command)


def _folder(method: str, values: Values) -> str:
    """Name a method's folder with the values it was given: `GRPO,learning_rate=0.0002`."""
    named = (f"{name.split('.')[-1]}={value}" for name, value in values.items())
    return file_name(",".join([method, *named]))


def file_name(text: str) -> str:
    """Turn a name into one that a folder can have."""
    return re.sub(r"[^\w.,=+]+", "-", text).strip("-.") or "method"
