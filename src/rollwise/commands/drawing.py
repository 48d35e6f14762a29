"""Problems and the responses to them, in files from which a killed command resumes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rollwise.commands.folder import read_again, write_settings
from rollwise.commands.show import progress
from rollwise.config import EvaluateConfig, PrepareConfig
from rollwise.config.step import wanted_columns
from rollwise.errors import RunError, one_line
from rollwise.grading.grader import Columns
from rollwise.records import Row
from rollwise.records.fingerprints import of_problems, of_settings
from rollwise.records.folder import describe_start
from rollwise.records.samples import read_part, write_part
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.sampling.draws import Key
from rollwise.step.groups import response_row
from rollwise.step.session import grade_with, run_session
from rollwise.tasks import Problem, ProblemSet, read_problems, write_problems
from rollwise.training.build import Built, build

C = TypeVar("C", EvaluateConfig, PrepareConfig)

Found = tuple[list[Problem], dict[str, int]]
"""Problems, and counts of those that were left out."""

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("index", pa.int32()),
        ("response", pa.string()),
        ("reward", pa.float64()),
        ("acc", pa.float64()),
        ("tokens", pa.int32()),
        ("truncated", pa.bool_()),
        ("turns", pa.int32()),
        ("end", pa.string()),
    ]
)
"""Columns, one row for each response: `index` numbers the draws of a problem; `acc` is what
`positive_threshold` is compared with; `truncated` says that the response reached the length limit.
Figures of a reward are in further columns, `rewards/NAME`. For an episode, `response` is all that
was said, `tokens` are the model's, and `end` is how it ended."""

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
    sources: Mapping[str, Callable[[], ProblemSet]],
    clean: Callable[[Built[C], ProblemSet], Found],
    console: Console,
    check: Callable[[Mapping[str, list[Problem]]], None] = lambda problems: None,
) -> dict[str, Found]:
    """Draw the responses that are missing in the folder `path`, to problems that it keeps.

    `sources` read the problems of each name; where the folder has them already, they must be the
    same as then, or out of reach. Else `clean` leaves some out; `check` may refuse what is left
    before anything is written.
    """
    files = {name: problem_file(path, name) for name in sources}
    now, read = of_settings(config), dict[str, ProblemSet]()
    columns = wanted_columns(config)
    for name, source in sources.items():
        if again := read_again(source, files[name].exists(), console):
            read[name], what = again, f"the benchmark {name}" if name else "the sources"
            now[what] = of_problems(again.problems)
    with build(config) as built:
        found = {
            name: _kept(file, columns) if file.exists() else clean(built, read[name])
            for name, file in files.items()
        }
        check({name: problems for name, (problems, _) in found.items()})
        write_settings(path, config, now, describe_start(_where(config)))
        for name, file in files.items():
            if not file.exists():
                problems, counts = found[name]
                write_problems(
                    file, problems, config.grading.type, notes={"counts": json.dumps(counts)}
                )
                found[name] = _kept(file, columns)
            problems, _ = found[name]
            if not config.samples:
                continue
            with progress(console, name or "pass rates", len(problems), "problems") as advance:
                _draw_portions(path / "responses" / name, problems, built, advance)
    return found


def _where(config: C) -> str:
    from rollwise.models.loading import describe_device  # which loads torch

    engine = config.engine
    return describe_device(config.model.device) if engine.kind.needs_model else str(engine.type)


def _kept(file: Path, columns: Columns) -> Found:
    """Read the problems that were kept, and the counts of those that were left out."""
    try:
        counts: dict[str, int] = json.loads(pq.read_schema(file).metadata[b"counts"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise RunError(
            f"cannot read the problems in {file}: {one_line(error)}; remove it to have them read "
            "again"
        ) from None
    return read_problems(file, columns=columns).problems, counts


def portions(folder: Path, problems: Sequence[Problem], size: int) -> dict[Path, Sequence[Problem]]:
    """Return the files of the responses to each `size` problems, and these problems.

    They are drawn separately, so that a resumed command writes the same files.
    """
    return {
        folder / f"part-{number:05d}.parquet": problems[start : start + size]
        for number, start in enumerate(range(0, len(problems), size))
    }


def _draw_portions(
    folder: Path, problems: Sequence[Problem], built: Built[C], advance: Callable[[int], None]
) -> None:
    """Draw and grade `samples` responses to each problem, except those already in `folder`."""
    found = portions(folder, problems, built.config.portion)
    for file, portion in found.items():
        if file.exists():
            keys: list[str] = read_part(file, ["key"], REMEDY)["key"].to_pylist()
            if not {*keys} <= {problem.key for problem in portion}:
                raise RunError(
                    f"{file} belongs to other problems; remove it to have them drawn again"
                )
        else:
            write_part(file, _draw(portion, built))
        advance(len(portion))
    if removed := [part.name for part in found if not part.exists()]:
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


def _draw(problems: Sequence[Problem], built: Built[C]) -> pa.Table:
    config, failed_before = built.config, built.grader.failures
    session = RolloutSession(
        [problem.key for problem in problems],
        exit_rule=FixedCount(config.samples),
        schedule=Rounds(size=config.samples, rounds=1),
        seed=config.seed,
        positive_threshold=config.grading.positive_threshold,
    )
    prompts = built.encode(problems).token_ids
    by_key: dict[Key, Problem] = {problem.key: problem for problem in problems}
    answers = {key: problem.answer for key, problem in by_key.items()}
    run_session(
        session,
        built.engine,
        prompts,
        grade_with(built.grader, answers, lambda key: by_key[key].row),
        stall_limit=config.stall_limit,
        max_new_tokens=config.engine.max_new_tokens,
    )
    rows: list[Row] = [
        {"key": key, **response_row(*each)}
        for key, pool in session.pools.items()
        for each in zip(pool.responses, pool.scores, strict=True)
    ]
    names: Row = dict.fromkeys(name for row in rows for name in row if name not in SCHEMA.names)
    schema = pa.schema([*SCHEMA, *((name, pa.float64()) for name in names)])
    failed = built.grader.failures - failed_before
    counts = {"lost_draws": str(session.lost), "grader_failures": str(failed)}
    return pa.Table.from_pylist(rows, schema).replace_schema_metadata(counts)
