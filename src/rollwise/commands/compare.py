"""`rollwise compare`: train methods with several seeds, and say what the differences are worth."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
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
from rollwise.commands.compare_tables import comparison_tables, in_words
from rollwise.commands.folder import settle, write_settings
from rollwise.commands.plan import compare_rewards
from rollwise.commands.show import methods_in_words, progress, say, show, write_figures
from rollwise.config import CompareConfig, make_config, make_settings
from rollwise.config.compare import FIRST_OF_CHOOSING
from rollwise.errors import ConfigError
from rollwise.records import RunFolder
from rollwise.records.final import seal
from rollwise.reports.methods import write_comparison_report
from rollwise.statistics.curves import Comparison, Curve, Curves, compare_methods

Values = Mapping[str, Any]
"""Settings of a method: full name -> value."""

Train = Callable[[str, Mapping[tuple[Any, ...], PlannedRun]], dict[Any, Curve]]
"""Says what it trains, and returns the curve of each run."""


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
    train = partial(_train, config, records, console)
    write_settings(path, config)
    say(console, methods_in_words(config.each()))
    chosen = _choose_settings(config, train)
    curves = _train_all(config, chosen, train)
    baseline = config.baseline or next(iter(curves))
    _tell(path, config, compare_methods(curves, baseline, config.target, chosen), console)


def _settings(layers: Sequence[Mapping[str, Any]], path: Path, resume: bool) -> CompareConfig:
    """Resolve the settings, and check the folder and the settings of every run."""
    if (path / RECORDS).exists() and not (resume or RunFolder(path).has_config):
        config = make_settings(CompareConfig, *layers)
    else:
        config = settle(CompareConfig, layers, path, resume)
    config.check_methods()
    names = [file_name(method) for method in config.compared]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of `methods` have the same folder name: {', '.join(names)}")
    return config


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
        (method, seed): PlannedRun(
            f"runs/{_folder(method, chosen[method])}/seed-{seed}",
            config.run_settings(method, seed, chosen[method]),
        )
        for seed in range(max(map(config.seeds_of, config.compared)))
        for method in config.compared
        if seed < config.seeds_of(method)
    }
    found = train("Training", runs)
    return {m: {s: found[m, s] for s in range(config.seeds_of(m))} for m in config.compared}


def _train(
    config: CompareConfig,
    records: Records,
    console: Console,
    what: str,
    runs: Mapping[tuple[Any, ...], PlannedRun],
) -> dict[Any, Curve]:
    """Train what is missing, and return the curve of each run."""
    planned = list(runs.values())
    if missing := sum(records.curve(run) is None for run in planned):
        workers = config.workers or runs_at_a_time(make_config(planned[0].settings))
        workers = min(workers, len(planned))
        console.print(
            f"{what}: {missing} of {len(planned)} runs, {min(workers, missing)} at a time"
        )
        with (
            progress(console, what, len(planned)) as advance,
            closing(train_missing(planned, records, workers)) as states,
        ):
            before = 0.0
            for done in states:
                advance(done - before)
                before = done
    curves = ((name, records.curve(run)) for name, run in runs.items())
    return {name: curve for name, curve in curves if curve}


def _tell(path: Path, config: CompareConfig, comparison: Comparison, console: Console) -> None:
    """Show a comparison, and write its figures, tables and report."""
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
    seal(RunFolder(path))
    made = config.each(comparison.chosen)
    configs = {name: each.model_dump(mode="json") for name, each in made.items()}
    report = write_comparison_report(path, comparison, words, tables, configs)
    say(console, [f"report: {report}"])


def _folder(method: str, values: Values) -> str:
    """Name a method's folder with the values it was given: `GRPO,learning_rate=0.0002`."""
    named = (f"{name.split('.')[-1]}={value}" for name, value in values.items())
    return file_name(",".join([method, *named]))


def file_name(text: str) -> str:
    """Turn a name into one that a folder can have."""
    return re.sub(r"[^\w.,=+]+", "-", text).strip("-.") or "method"
