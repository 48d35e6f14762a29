"""`rollwise prepare`: clean problems, measure their pass rates, and choose which to train on."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from rollwise.commands.drawing import Found, Responses, draw_all, read_responses
from rollwise.commands.folder import resolve, seal
from rollwise.config import PrepareConfig, is_made
from rollwise.config.drawing import RANGES, pass_rate_range
from rollwise.config.step import wanted_columns
from rollwise.errors import DataError
from rollwise.records import RunFolder
from rollwise.reports import write_data_card
from rollwise.sampling.score import acc_of
from rollwise.statistics import as_json, binomial_intervals, histogram, mean_over_problems
from rollwise.tasks import (
    Problem,
    ProblemSet,
    check_references,
    make_from_source,
    read_source,
    remove_near_duplicates,
    write_problems,
)
from rollwise.training.build import Built

CHANGEABLE = ("selection.range", "plugin_folder", "stall_limit")
"""Settings that may change on resuming, because responses do not depend on them."""

MEASURED = ("key", "acc", "tokens", "truncated")
"""Columns of the responses that are needed for pass rates."""

Columns = Mapping[str, NDArray[Any]]


def prepare(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> None:
    """Prepare problems, or resume a preparation, in the folder `path`."""
    config = resolve(PrepareConfig, layers, path, resume, CHANGEABLE)
    sources, clean = {"": partial(_read_all, config, console)}, partial(_clean, console=console)
    [(problems, counts)] = draw_all(config, path, sources, clean, console).values()
    responses = read_responses(path / "responses", MEASURED)
    rates = _pass_rates(problems, responses, config.grading.positive_threshold)
    low, high = pass_rate_range(config.selection.range)
    chosen = (low <= rates["pass_rate"]) & (rates["pass_rate"] <= high)  # NaN is in no range
    if config.samples:
        found = _summarize(config, rates, chosen) | responses.lengths() | responses.counts
    else:
        rates, chosen = {}, np.ones(len(problems), dtype=bool)
        found = {"chosen": len(problems), "samples": 0}
    summary = counts | found
    RunFolder(path).write_summary(summary)
    card = write_data_card(path, summary, asdict(config))
    _write_chosen(path / "prepared.parquet", config, problems, rates, chosen)
    seal(path, card.name)  # which people edit: it is not overwritten then
    console.print(
        f"{summary['chosen']:,} of {summary['read']:,} problems: {path / 'prepared.parquet'}\n"
        f"data card: {card}",
        markup=False,
    )


def _read_all(config: PrepareConfig, console: Console) -> ProblemSet:
    """Read the problems; leave out those that are empty, unanswered, duplicate or contradictory."""
    found = ProblemSet.join([_read(config, source, console) for source in config.data.sources])
    if not found.problems:
        raise DataError(f"the sources have no usable problem: {found.describe()}")
    return found


def _clean(built: Built[PrepareConfig], found: ProblemSet, console: Console) -> Found:
    """Leave out near duplicates, wrong solutions, and, if a model is to draw, what is too long."""
    unique = remove_near_duplicates(found.problems)
    verified, checked = _verified(built, unique, console)
    counts = found.left_out | {
        "near_duplicates": len(found.problems) - len(unique),
        "checked_solutions": checked,
        "refuted_solutions": len(unique) - len(verified),
    }
    if not built.config.samples:
        return verified, counts
    fitting = built.encode(verified)
    return fitting.problems, counts | {"too_long": fitting.too_long}


def _read(config: PrepareConfig, source: str, console: Console) -> ProblemSet:
    data = config.data
    if is_made(source):
        return ProblemSet.of(make_from_source(source, data, data.problems, config.seed))
    found = read_source(source, data, data.split, wanted_columns(config))
    console.print(f"{source}: {found.describe()}", markup=False)
    check_references(found.problems, config.grading.make(), source)
    named = [dataclasses.replace(p, source=p.source or Path(source).stem) for p in found.problems]
    return ProblemSet(named, found.counts)


def _verified(
    built: Built[PrepareConfig], problems: list[Problem], console: Console
) -> tuple[list[Problem], int]:
    """Leave out problems whose reference solution is wrong; return them and the number checked."""
    config = built.config
    solved = [problem for problem in problems if problem.solution.strip()]
    if not config.selection.check_solutions or not solved:
        return problems, 0
    with console.status(f"checking {len(solved):,} reference solutions"):
        columns = zip(*[(p.solution, p.answer, p.row) for p in solved], strict=True)
        rewards = built.grader.scores(*map(list, columns))
    threshold = config.grading.positive_threshold
    refuted = {p.key for p, r in zip(solved, rewards, strict=True) if acc_of(r) <= threshold}
    left = [problem for problem in problems if problem.key not in refuted]
    if not left:
        raise DataError(
            f"no reference solution is correct by the grader `{config.grading.type}`; is "
            "it the right one (`grading.type`)? `selection.check_solutions false` does not check"
        )
    return left, len(solved)


def _pass_rates(problems: Sequence[Problem], responses: Responses, threshold: float) -> Columns:
    """Measure pass rates of P problems: columns (P,), NaN for a rate whose draws were all lost."""
    of_problems = [responses.rows.get(problem.key, []) for problem in problems]
    drawn = np.array([len(rows) for rows in of_problems])
    correct = np.array([sum(r["acc"] > threshold for r in rows) for rows in of_problems])
    value = np.divide(correct, drawn, out=np.full(len(drawn), np.nan), where=drawn > 0)
    low, high = binomial_intervals(correct, drawn)
    return {"pass_rate": value, "pass_rate_low": low, "pass_rate_high": high, "drawn": drawn}


def _summarize(config: PrepareConfig, rates: Columns, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    known = rates["pass_rate"][rates["drawn"] > 0]
    if not len(known):
        raise DataError("the engine lost all draws; the log says why")
    return {
        "undrawn": int((rates["drawn"] == 0).sum()),
        "out_of_range": int(len(known) - chosen.sum()),
        "chosen": int(chosen.sum()),
        "range": RANGES.get(config.selection.range, config.selection.range),
        "samples": config.samples,
        **as_json({"pass_rate": mean_over_problems(known)}),
        "histogram": histogram(known),
    }


def _write_chosen(
    path: Path,
    config: PrepareConfig,
    problems: Sequence[Problem],
    rates: Columns,
    chosen: NDArray[np.bool_],
) -> None:
    """Write the chosen problems with their pass rates; it is an error if there are none."""
    if not chosen.any():
        path.unlink(missing_ok=True)  # from a range that was chosen before
        raise DataError(
            f"no problem has a pass rate within `selection.range` = {config.selection.range!r}; "
            f"{path.parent / 'README.md'} shows how they are spread, and another range needs no "
            "new responses"
        )
    left = [problem for problem, keep in zip(problems, chosen, strict=True) if keep]
    measured = {name: values[chosen].tolist() for name, values in rates.items()}
    write_problems(path, left, config.grading.type, measured)
