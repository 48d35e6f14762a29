"""`rollwise prepare`: clean problems, measure their pass rates, and choose which to train on."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from rollwise.commands.drawing import Found, Responses, draw_all, read_responses
from rollwise.commands.folder import settle
from rollwise.config import BUILT_IN_NAMES, PrepareConfig
from rollwise.config.drawing import RANGES, pass_rate_range
from rollwise.errors import DataError
from rollwise.models.building import Parts
from rollwise.records import RunFolder
from rollwise.records.final import seal
from rollwise.reports import write_data_card
from rollwise.statistics import as_json, binomial_intervals, mean_over_problems
from rollwise.tasks import (
    Problem,
    ProblemSet,
    make_built_in,
    read_source,
    remove_near_duplicates,
    write_problems,
)

CHANGEABLE = ("selection.range", "plugin_folder", "stall_limit")
"""Settings that may change on resuming, because responses do not depend on them."""

MEASURED = ("key", "reward", "tokens", "truncated")
"""Columns of the responses that are needed for pass rates."""

Columns = Mapping[str, NDArray[Any]]


def prepare(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> None:
    """Prepare problems, or resume a preparation, in the folder `path`."""
    config = settle(PrepareConfig, layers, path, resume, CHANGEABLE)
    sources = {"": partial(_clean, console=console)}
    [(problems, counts)] = draw_all(config, path, sources, console).values()
    responses = read_responses(path / "responses", MEASURED)
    rates = _pass_rates(problems, responses, config.grading.positive_threshold)
    low, high = pass_rate_range(config.selection.range)
    chosen = (low <= rates["pass_rate"]) & (rates["pass_rate"] <= high)  # NaN is in no range
    summary = counts | _summarize(config, rates, chosen) | responses.lengths() | responses.counts
    RunFolder(path).write_summary(summary)
    card = write_data_card(path, summary, config.model_dump(mode="json"))
    _write_chosen(path / "prepared.parquet", config, problems, rates, chosen)
    seal(RunFolder(path))
    console.print(
        f"{summary['chosen']:,} of {summary['read']:,} problems: {path / 'prepared.parquet'}\n"
        f"data card: {card}",
        markup=False,
    )


def _clean(parts: Parts[PrepareConfig], console: Console) -> Found:
    """Leave out problems that are empty, unanswered, duplicate, contradictory or too long."""
    config = parts.config
    found = ProblemSet.join([_read(config, source, console) for source in config.data.sources])
    if not found.problems:
        raise DataError(f"the sources have no usable problem: {found.describe()}")
    unique = remove_near_duplicates(found.problems)
    verified, checked = _verified(parts, unique, console)
    fitting = parts.encode(verified)
    counts = {name: count for name, count in found.counts.items() if name != "kept"} | {
        "near_duplicates": len(found.problems) - len(unique),
        "checked_solutions": checked,
        "refuted_solutions": len(unique) - len(verified),
        "too_long": fitting.too_long,
    }
    return fitting.problems, counts


def _read(config: PrepareConfig, source: str, console: Console) -> ProblemSet:
    data = config.data
    if source in BUILT_IN_NAMES:
        return ProblemSet.of(make_built_in(data, data.problems, config.seed))
    found = read_source(source, data, data.split)
    console.print(f"{source}: {found.describe()}", markup=False)
    named = [dataclasses.replace(p, source=p.source or Path(source).stem) for p in found.problems]
    return ProblemSet(named, found.counts)


def _verified(
    parts: Parts[PrepareConfig], problems: list[Problem], console: Console
) -> tuple[list[Problem], int]:
    """Leave out problems whose reference solution is wrong; return them and the number checked."""
    config = parts.config
    solved = [problem for problem in problems if problem.solution.strip()]
    if not config.selection.check_solutions or not solved:
        return problems, 0
    with console.status(f"checking {len(solved):,} reference solutions"):
        rewards = parts.grader.grade([p.solution for p in solved], [p.answer for p in solved])
    is_right = rewards > config.grading.positive_threshold
    refuted = {p.key for p, right in zip(solved, is_right, strict=True) if not right}
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
    correct = np.array([sum(r["reward"] > threshold for r in rows) for rows in of_problems])
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


def histogram(rates: NDArray[np.float64]) -> dict[str, int]:
    """Count pass rates by tenths; 0 and 1 have bars of their own."""
    tenths = np.clip(np.ceil(np.round(rates * 10, 9)).astype(int), 1, 10)
    inner = (rates > 0) & (rates < 1)
    names = [f"({i / 10:g}, {(i + 1) / 10:g}{')' if i == 9 else ']'}" for i in range(10)]
    bars = {name: int((inner & (tenths == i)).sum()) for i, name in enumerate(names, 1)}
    return {"0": int((rates == 0).sum()), **bars, "1": int((rates == 1).sum())}


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
