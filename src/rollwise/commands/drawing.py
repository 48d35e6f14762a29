"""Problems and the responses to them, in files from which a killed command resumes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rollwise.commands.folder import write_settings
from rollwise.commands.show import progress
from rollwise.config import EvaluateConfig, PrepareConfig
from rollwise.errors import RunError, one_line
from rollwise.models.building import Parts
from rollwise.records import Row
from rollwise.records.samples import read_part, write_part
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.sampling.draws import Key
from rollwise.step.groups import response_row
from rollwise.step.session import grade_with, run_session
from rollwise.tasks import Problem, read_problems, write_problems

C = TypeVar("C", EvaluateConfig, PrepareConfig)

Found = tuple[list[Problem], dict[str, int]]
"""Problems, and counts of those that were left out."""

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("index", pa.int32()),
        ("response", pa.string()),
        ("reward", pa.float64()),
        ("tokens", pa.int32()),
        ("truncated", pa.bool_()),
        ("turns", pa.int32()),
        ("end", pa.string()),
    ]
)
"""Columns, one row for each response: `index` numbers the draws of a problem; `truncated` says that
the response reached the length limit. For an episode, `response` is all that was said, `tokens` are
the model's, and `end` is how it ended."""

REMEDY = "have them drawn again"
"""Why to remove a broken file of responses, for the error that says so."""

COUNTED = ("lost_draws", "grader_failures")
"""Counts that are kept in the metadata of a portion."""


@dataclass
class Responses:
    """The responses to problems by their keys, in the order of the problems and of the draws.

    A problem whose draws were all lost, after several attempts, is missing.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def all_rows(self) -> list[Row]:
        """List all responses."""
        return [row for rows in self.rows.values() for row in rows]

    def lengths(self) -> dict[str, float]:
        """Return the mean tokens of responses, and the share that reached the limit; 0 if none."""
        rows = self.all_rows()
        names = ("tokens", "truncated")
        return {name: sum(row[name] for row in rows) / max(1, len(rows)) for name in names}


def problem_file(path: Path, name: str) -> Path:
    """Return the file of the problems of this name, which may be "", in the folder of a command."""
    return path / "problems" / f"{name}.parquet" if name else path / "problems.parquet"


def draw_all(
    config: C,
    path: Path,
    sources: Mapping[str, Callable[[Parts[C]], Found]],
    console: Console,
    check: Callable[[Mapping[str, list[Problem]]], None] = lambda problems: None,
) -> dict[str, Found]:
    """Draw the responses that are missing in the folder `path`, to problems that it keeps.

    `sources` read the problems of each name if the folder does not have them yet; `check` may
    refuse them before anything is written.
    """
    files = {name: problem_file(path, name) for name in sources}
    with Parts(config) as parts:
        found = {
            name: _kept(files[name]) if files[name].exists() else read(parts)
            for name, read in sources.items()
        }
        check({name: problems for name, (problems, _) in found.items()})
        write_settings(path, config)
        for name, file in files.items():
            if not file.exists():
                problems, counts = found[name]
                write_problems(
                    file, problems, config.grading.type, notes={"counts": json.dumps(counts)}
                )
                found[name] = _kept(file)
            problems, _ = found[name]
            with progress(console, name or "pass rates", len(problems), "problems") as advance:
                _draw_portions(path / "responses" / name, problems, parts, advance)
    return found


def _kept(file: Path) -> Found:
    """Read the problems that were kept, and the counts of those that were left out."""
    try:
        counts: dict[str, int] = json.loads(pq.read_schema(file).metadata[b"counts"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise RunError(
            f"cannot read the problems in {file}: {one_line(error)}; remove it to have them read "
            "again"
        ) from None
    return read_problems(file).problems, counts


def _draw_portions(
    folder: Path, problems: Sequence[Problem], parts: Parts[C], advance: Callable[[int], None]
) -> None:
    """Draw and grade `samples` responses to each problem, except those already in `folder`."""
    # Each portion is drawn separately, so that a resumed command writes the same files.
    size = parts.config.portion
    starts = range(0, len(problems), size)
    portions = {
        folder / f"part-{number:05d}.parquet": problems[start : start + size]
        for number, start in enumerate(starts)
    }
    for file, portion in portions.items():
        if file.exists():
            keys: list[str] = read_part(file, ["key"], REMEDY)["key"].to_pylist()
            if not {*keys} <= {problem.key for problem in portion}:
                raise RunError(
                    f"{file} belongs to other problems; remove it to have them drawn again"
                )
        else:
            write_part(file, _draw(portion, parts))
        advance(len(portion))
    if removed := [part.name for part in portions if not part.exists()]:
        raise RunError(
            f"{folder}: {', '.join(removed)} was removed while the command ran; remove what is "
            "left, and repeat the command"
        )


def read_responses(folder: Path, columns: Sequence[str] = SCHEMA.names) -> Responses:
    """Read the columns, `key` among them, of all portions of a folder."""
    found = Responses()
    for path in sorted(folder.glob("part-*.parquet")):
        table = read_part(path, columns, REMEDY)
        for row in table.to_pylist():
            found.rows.setdefault(row["key"], []).append(row)
        noted = table.schema.metadata or {}
        for name in COUNTED:
            found.counts[name] += int(noted.get(name.encode(), 0))
    return found


def _draw(problems: Sequence[Problem], parts: Parts[C]) -> pa.Table:
    config, failed_before = parts.config, parts.grader.failures
    session = RolloutSession(
        [problem.key for problem in problems],
        exit_rule=FixedCount(config.samples),
        schedule=Rounds(size=config.samples, rounds=1),
        seed=config.seed,
        positive_threshold=config.grading.positive_threshold,
    )
    prompts = parts.encode(problems).token_ids
    answers: dict[Key, str] = {problem.key: problem.answer for problem in problems}
    grade = grade_with(parts.grader, answers)
    limits = config.stall_limit, config.engine.max_new_tokens
    run_session(session, parts.engine, prompts, grade, *limits)
    rows = [
        {"key": key, **response_row(*each)}
        for key, pool in session.pools.items()
        for each in zip(pool.responses, pool.rewards.tolist(), strict=True)
    ]
    failed = parts.grader.failures - failed_before
    counts = {"lost_draws": str(session.lost), "grader_failures": str(failed)}
    return pa.Table.from_pylist(rows, SCHEMA).replace_schema_metadata(counts)
