"""`rollwise prepare`: clean problems, measure their pass rates, and choose which to train on."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console

from rollwise.commands.display import progress
from rollwise.commands.folder import stopped, write_settings
from rollwise.commands.responses import (
    Responses,
    check_note,
    draw_responses,
    read_responses,
    resolve_settings,
    settings_note,
)
from rollwise.config import BUILT_IN_NAMES, PassRateRange, PrepareConfig
from rollwise.config.drawing import RANGES
from rollwise.errors import DataError, RunError, one_line
from rollwise.models.building import Parts, build
from rollwise.records import Row, RunFolder
from rollwise.records.final import seal
from rollwise.reports import write_data_card
from rollwise.statistics import as_json, binomial_intervals, mean_over_problems
from rollwise.tasks import (
    Problem,
    ProblemSet,
    make_built_in,
    read_problems,
    read_source,
    remove_near_duplicates,
    write_problems,
)

CHANGEABLE = ("selection.range", "plugin_folder", "stall_limit")
"""Settings that may change on resuming, because responses do not depend on them."""

MEASURED = ("key", "reward", "tokens", "truncated")
"""Columns of the responses that are needed for pass rates."""


def prepare(
    layers: Sequence[Mapping[str, Any]], path: Path, resume: bool, console: Console
) -> bool:
    """Prepare problems, or resume a preparation, in the folder `path`; returns whether it finished.

    Args:
        layers: Settings; later layers win.
        path: The folder of the preparation.
        resume: Start from the settings that are recorded in the folder.
        console: Where to show progress.

    Raises:
        RollwiseError: Says what is wrong, and what to do.
        Terminated: SIGTERM or SIGHUP stopped it; all portions but the last are written.
    """
    config = resolve_settings(PrepareConfig, layers, path, resume, CHANGEABLE)
    folder = RunFolder(path)
    try:
        with build(config) as parts:
            problems, counts = _cleaned(config, folder, parts, console)
            with progress(console, "pass rates", len(problems), "problems") as on_portion:
                draw_responses(path / "responses", problems, parts, on_portion)
    except KeyboardInterrupt as stop:
        return stopped("prepare", path, console, stop)
    responses = read_responses(path / "responses", MEASURED)
    rates = PassRates.of(problems, responses, config)
    chosen = PassRateRange.parse(config.selection.range).holds(rates.value) & (rates.drawn > 0)
    summary = _summarise(config, counts, rates, chosen, responses)
    folder.write_summary(summary)
    card = write_data_card(path, summary, config.model_dump(mode="json"))
    _write_chosen(path / "prepared.parquet", config, problems, rates, chosen)
    seal(folder)
    console.print(
        f"{summary['chosen']:,} of {summary['read']:,} problems: {path / 'prepared.parquet'}\n"
        f"data card: {card}",
        markup=False,
    )
    return True


@dataclass(frozen=True, eq=False)
class PassRates:
    """Pass rates of P problems, measured by the responses to each; arrays of shape (P,).

    Attributes:
        drawn: Number of responses; where it is 0, because all draws were lost, the rest is NaN.
        value: Share of the responses that is correct.
        low: Lower end of the exact 95 % interval (Clopper and Pearson 1934).
        high: Upper end of the interval.
    """

    drawn: NDArray[np.int64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(
        cls, problems: Sequence[Problem], responses: Responses, config: PrepareConfig
    ) -> "PassRates":
        """Measure the pass rates."""
        of_problems = [responses.rows.get(problem.key, []) for problem in problems]
        threshold = config.grading.positive_threshold
        drawn = np.array([len(rows) for rows in of_problems])
        correct = np.array([sum(r["reward"] > threshold for r in rows) for rows in of_problems])
        value = np.divide(correct, drawn, out=np.full(len(drawn), np.nan), where=drawn > 0)
        return cls(drawn, value, *binomial_intervals(correct, drawn))


def _cleaned(
    config: PrepareConfig, folder: RunFolder, parts: Parts[PrepareConfig], console: Console
) -> tuple[list[Problem], dict[str, int]]:
    """Read the problems that were cleaned before; in a new folder, clean them."""
    path = folder.path / "problems.parquet"
    if not path.exists():
        problems, counts = clean(config, parts, console)
        write_settings(folder, config)
        notes = {"counts": json.dumps(counts)} | settings_note(config)
        write_problems(path, problems, config.grading.type, notes=notes)
    check_note(path, config, CHANGEABLE)
    write_settings(folder, config)
    return read_problems(path).problems, _noted_counts(path)


def _noted_counts(path: Path) -> dict[str, int]:
    try:
        counts: dict[str, int] = json.loads(pq.read_schema(path).metadata[b"counts"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise RunError(
            f"{path} is not a file of `rollwise prepare` ({one_line(error)}); remove it to have "
            "the problems read again"
        ) from None
    return counts


def clean(
    config: PrepareConfig, parts: Parts[PrepareConfig], console: Console
) -> tuple[list[Problem], dict[str, int]]:
    """Leave out problems that are empty, unanswered, duplicate, contradictory or too long.

    Returns:
        The problems, and the number left out at each stage.
    """
    found = ProblemSet.join([_read(config, source, console) for source in config.data.sources])
    if not found.problems:
        raise DataError(f"the sources hold no problem that can be used: {found.describe()}")
    unique = remove_near_duplicates(found.problems, config.selection.near_duplicates)
    verified, checked = _verified(config, parts, unique.problems, console)
    fitting = parts.encode(verified)
    counts = {name: count for name, count in found.counts.items() if name != "kept"}
    counts["near_duplicates"] = len(unique.duplicates)
    counts["checked_solutions"] = checked
    counts["refuted_solutions"] = len(unique.problems) - len(verified)
    counts["too_long"] = fitting.too_long
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
    config: PrepareConfig, parts: Parts[PrepareConfig], problems: list[Problem], console: Console
) -> tuple[list[Problem], int]:
    """Leave out problems whose reference solution is wrong; return them and the number checked."""
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
            f"no reference solution comes to its answer by the grader `{config.grading.type}`; is "
            "it the right one (`grading.type`)? `selection.check_solutions false` does not check"
        )
    return left, len(solved)


def _summarise(
    config: PrepareConfig,
    counts: Mapping[str, int],
    rates: PassRates,
    chosen: NDArray[np.bool_],
    responses: Responses,
) -> Row:
    known = rates.value[rates.drawn > 0]
    if not len(known):
        raise DataError("the engine lost all draws; the log says why")
    return {
        **counts,
        "undrawn": int((rates.drawn == 0).sum()),
        "out_of_range": int(len(known) - chosen.sum()),
        "chosen": int(chosen.sum()),
        "range": RANGES.get(config.selection.range, config.selection.range),
        "samples": config.samples,
        **as_json({"pass_rate": mean_over_problems(known)}),
        "histogram": histogram(known),
        **responses.lengths(),
        **responses.counts,
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
    rates: PassRates,
    chosen: NDArray[np.bool_],
) -> None:
    """Write the chosen problems.

    Raises:
        DataError: No problem was chosen.
    """
    if not chosen.any():
        path.unlink(missing_ok=True)  # of a range that was chosen before
        raise DataError(
            f"no problem has a pass rate within `selection.range` = {config.selection.range!r}; "
            f"{path.parent / 'README.md'} shows how they are spread, and another range needs no "
            "new responses"
        )
    columns = {
        "pass_rate": rates.value,
        "pass_rate_low": rates.low,
        "pass_rate_high": rates.high,
        "drawn": rates.drawn,
    }
    left = [problem for problem, keep in zip(problems, chosen, strict=True) if keep]
    measured = {name: values[chosen].tolist() for name, values in columns.items()}
    write_problems(path, left, config.grading.type, measured)
