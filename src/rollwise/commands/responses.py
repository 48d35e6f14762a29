"""Problems and the responses to them, kept in portions, so that a killed run can be resumed."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollwise.config import EvaluateConfig, PrepareConfig, make_settings
from rollwise.errors import RunError, one_line
from rollwise.files import written_whole
from rollwise.models.building import Parts
from rollwise.records import refuse_changes
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.sampling.draws import Key
from rollwise.step.episodes import Episode
from rollwise.step.outcomes import Outcome
from rollwise.step.session import grade_with, run_session
from rollwise.tasks import Problem, read_problems, write_problems

Config = EvaluateConfig | PrepareConfig
DrawnParts = Parts[EvaluateConfig] | Parts[PrepareConfig]

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
the response reached the length limit. Of an episode, `response` is all that was said, `tokens` are
the model's, and `end` is how it ended."""

OF_RESPONSES = SCHEMA.names[:6]
"""The columns that say what a response is, without how an episode went."""

COUNTED = ("lost_draws", "grader_failures")
"""Counts that are kept in the metadata of a portion."""


@dataclass
class Responses:
    """The responses to some problems, in the order of the problems and of the draws.

    Attributes:
        rows: Problem key -> its responses; a problem whose draws were all lost is missing.
        counts: `lost_draws` (lost by the engine after several attempts) and `grader_failures`.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def all_rows(self) -> list[dict[str, Any]]:
        """List all responses."""
        return [row for rows in self.rows.values() for row in rows]

    def lengths(self) -> dict[str, float]:
        """Average the tokens of a response, and the share that reached the limit; 0 of none."""
        rows = self.all_rows()
        return {
            name: sum(row[name] for row in rows) / max(1, len(rows))
            for name in ("tokens", "truncated")
        }


def keep_problems(
    path: Path, problems: Sequence[Problem], config: Config, counts: Mapping[str, int] | None = None
) -> None:
    """Write problems with the settings by which responses to them are drawn, and some counts."""
    notes = {"settings": config.model_dump(mode="json"), "counts": counts}
    written = {name: json.dumps(note) for name, note in notes.items()}
    write_problems(path, problems, config.grading.type, notes=written)


def kept_problems(
    path: Path, config: Config, changeable: tuple[str, ...]
) -> tuple[list[Problem], dict[str, int]]:
    """Read the problems and the counts that `keep_problems` wrote.

    The settings stand here too, because `config.json` may have been edited since.

    Raises:
        ConfigError: The settings differ in others than those that are `changeable`.
        RunError: The file cannot be read.
    """
    try:
        notes = pq.read_schema(path).metadata
        settings, counts = (json.loads(notes[name]) for name in (b"settings", b"counts"))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise RunError(
            f"cannot read the problems in {path}: {one_line(error)}; remove it to have them read "
            "again"
        ) from None
    before = make_settings(type(config), settings)
    refuse_changes(path, before.model_dump(), config.model_dump(), changeable)
    return read_problems(path).problems, counts or {}


def draw_responses(
    folder: Path,
    problems: Sequence[Problem],
    parts: DrawnParts,
    on_portion: Callable[[int], None] = lambda prompts: None,
) -> None:
    """Draw and grade `samples` responses to each problem, except those already in `folder`.

    A draw's random numbers depend on the seed, the problem's key and the draw's index, and each
    portion is drawn separately, so a run that was interrupted and resumed has the same files as one
    that was not.

    Args:
        folder: Holds the portions, `part-00000.parquet` and so on.
        problems: Problems with different keys; always the same ones for the same folder.
        parts: Draw and grade.
        on_portion: Called after each portion with its number of problems.

    Raises:
        RunError: A portion cannot be written, is broken, or is of other problems; or one was
            removed meanwhile.
    """
    size = parts.config.portion
    portions = [problems[start : start + size] for start in range(0, len(problems), size)]
    paths = [folder / f"part-{number:05d}.parquet" for number in range(len(portions))]
    for path, portion in zip(paths, portions, strict=True):
        if not path.exists():
            _write(path, *_draw(portion, parts))
        elif not {row["key"] for row in _read(path, ["key"]).to_pylist()} <= {
            problem.key for problem in portion
        }:
            raise RunError(f"{path} is of other problems; remove it to have them drawn again")
        on_portion(len(portion))
    if removed := [path.name for path in paths if not path.exists()]:
        raise RunError(
            f"{folder}: {', '.join(removed)} was removed while the command ran; remove what is "
            "left, and repeat the command"
        )


def read_responses(folder: Path, columns: Sequence[str] = OF_RESPONSES) -> Responses:
    """Read the columns, `key` among them, of all portions of a folder.

    Raises:
        RunError: A portion is broken.
    """
    found = Responses()
    for path in sorted(folder.glob("part-*.parquet")):
        table = _read(path, columns)
        for row in table.to_pylist():
            found.rows.setdefault(row["key"], []).append(row)
        noted = table.schema.metadata or {}
        for name in COUNTED:
            found.counts[name] += int(noted.get(name.encode(), 0))
    return found


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        table = pq.read_table(path, columns=list(columns), page_checksum_verification=True)
        table.validate(full=True)  # else text that is no UTF-8 is found where it is used
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise RunError(
            f"cannot read the responses in {path}: {error}; remove it to have them drawn again"
        ) from None
    return table


def _draw(
    problems: Sequence[Problem], parts: DrawnParts
) -> tuple[list[dict[str, Any]], Mapping[str, int]]:
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
    run_session(session, parts.engine, prompts, grade, stall_limit=config.stall_limit)
    rows = [
        _row(key, *each)
        for key, pool in session.pools.items()
        for each in zip(pool.responses, pool.rewards, strict=True)
    ]
    failed = parts.grader.failures - failed_before
    return rows, {"lost_draws": session.lost, "grader_failures": failed}


def _row(key: Key, outcome: Outcome, reward: float) -> dict[str, Any]:
    episode = Episode.of(outcome)
    return {
        "key": key,
        "index": outcome.draw.index,
        "response": getattr(outcome, "transcript", outcome.text),
        "reward": float(reward),
        "tokens": episode.usage.tokens,
        "truncated": outcome.truncated,
        "turns": episode.usage.turns,
        "end": episode.end,
    }


def _write(path: Path, rows: list[dict[str, Any]], counts: Mapping[str, int]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    noted = table.replace_schema_metadata({name: str(count) for name, count in counts.items()})
    with written_whole(path) as partial:
        pq.write_table(noted, partial, write_page_checksum=True)
