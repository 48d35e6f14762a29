"""Problems from a file, a data set on the hub or an environment.

`schemas.py` recognizes the columns of problems and answers. Further ones are used where they are
there: `data_source` (or `source`), `level` (5 or "Level 5"), `subject` (or `type`), `solution`,
`pass_rate` with `drawn` (how many responses it was measured with), and `key`, which then names the
problem; others are kept where they are asked for. A row with more than text (`images`, `tools`) is
refused: without them it would be another problem.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollwise.config import ENVIRONMENT
from rollwise.config.data import DataSettings
from rollwise.config.drawing import SourceSettings
from rollwise.config.sections import differs
from rollwise.environments import EnvironmentSource
from rollwise.errors import DataError
from rollwise.grading import GraderSettings
from rollwise.grading.grader import NO_COLUMNS, Columns
from rollwise.tasks.problem import Message, Problem, problem_key, with_system_prompt
from rollwise.tasks.schemas import COLUMNS, NOT_SHOWN, Schema, refuse_more_than_text
from rollwise.tasks.tables import Row, among, read_table

log = logging.getLogger(__name__)

MOST_DRAWN = 2**53
"""No pass rate is measured with more responses than this."""
_PLACEHOLDER = re.compile(r"<(?:image|video|audio)[ _]?\d*>")
OPTIONAL_COLUMNS = (
    *("data_source", "source", "level", "subject", "type", "problem_type"),
    *("solution", "key", "pass_rate", "drawn", "extra_info"),
)
MOST_UNREADABLE = 0.05
"""The share of unreadable references from which data is refused."""


DROPPED = ("duplicates", "conflicting_answers", "missing_answers", "empty_problems")
"""What is counted of the rows of a source besides those kept."""


@dataclass(frozen=True)
class ProblemSet:
    """The problems of a source, and how many rows were dropped and why.

    Attributes:
        problems: Those kept, in the order of the source; no two have the same key.
        counts: Numbers of rows: `read` = `kept` + `duplicates` (of a problem kept) +
            `missing_answers` + `empty_problems`. Of the duplicates, `conflicting_answers` have
            a different answer from the problem kept.
        columns: Which columns became what, for a log; "" if there were none.
    """

    problems: list[Problem]
    counts: dict[str, int]
    columns: str = ""

    @classmethod
    def of(cls, problems: Iterable[Problem], columns: str = "") -> "ProblemSet":
        """Drop and count problems that are empty, lack their answer, or came before."""
        counts = dict.fromkeys(("read", *DROPPED, "kept"), 0)
        kept: dict[str, Problem] = {}
        for problem in problems:
            counts["read"] += 1
            if all(m["role"] == "system" or not m["content"].strip() for m in problem.messages):
                counts["empty_problems"] += 1
            elif not problem.answer.strip():
                counts["missing_answers"] += 1
            elif problem.key in kept:
                counts["duplicates"] += 1
                counts["conflicting_answers"] += problem.answer != kept[problem.key].answer
            else:
                counts["kept"] += 1
                kept[problem.key] = problem
        return cls(list(kept.values()), counts, columns)

    @classmethod
    def join(cls, sets: Iterable["ProblemSet"]) -> "ProblemSet":
        """Join several sources; if several have a problem, the first is kept."""
        sources = list(sets)
        problems = [problem for source in sources for problem in source.problems]
        asked: dict[str, tuple[Message, ...]] = {}
        for problem in problems:
            if asked.setdefault(problem.key, problem.messages) != problem.messages:
                raise DataError(f"the sources have different problems of the key {problem.key!r}")
        found = cls.of(problems)
        counts = Counter(found.counts)
        for source in sources:
            counts.update(source.left_out)
        return cls(found.problems, {**counts, "read": sum(s.counts["read"] for s in sources)})

    @property
    def left_out(self) -> dict[str, int]:
        """The counts of what was read and dropped."""
        return {name: count for name, count in self.counts.items() if name != "kept"}

    def describe(self) -> str:
        """Return a line for a log: what was read, dropped and kept."""
        parts = [f"{self.counts['read']:,} read"]
        for name in DROPPED:
            if count := self.counts[name]:
                words = name.replace("_", " ")
                parts.append(f"{count:,} {words if count > 1 else words.removesuffix('s')}")
        parts = [", ".join(parts), f"{self.counts['kept']:,} kept", self.columns]
        return "; ".join(filter(None, parts))


def read_problems(
    source: str | Path,
    *,
    split: str = "train",
    subset: str | None = None,
    problem_column: str | None = None,
    answer_column: str | None = None,
    instruction: str = "",
    system_prompt: str = "",
    environment: EnvironmentSource | None = None,
    columns: Columns = NO_COLUMNS,
) -> ProblemSet:
    """Read the problems of a source; each is kept once, where it comes first.

    Args:
        source: A .parquet, .jsonl or .json file, `environment`, or else a data set on the hub.
        split: The split of a data set on the hub; files and environments have none.
        subset: The configuration of a data set on the hub that has several.
        problem_column: The column of problems, if it cannot be recognized.
        answer_column: The column of answers, if it cannot be recognized.
        instruction: Put below each problem that is a text, not a conversation.
        system_prompt: The first message of each problem that has no system message.
        environment: The environment whose questions are read if `source` is `environment`.
        columns: Further columns that problems keep, and whether they must be there.

    Raises:
        DataError: The source cannot be read, its columns are not recognized or lack one that is
            needed, or a row is malformed.
        ConfigError: The environment cannot be opened.
    """
    if source == ENVIRONMENT and environment is not None:
        return ProblemSet.of(_asked_by(environment, system_prompt))
    named = {name for name in (problem_column, answer_column) if name}
    wanted = {*COLUMNS, *named, *OPTIONAL_COLUMNS, *NOT_SHOWN, *columns}
    table = read_table(source, split, subset, wanted)
    missing = [f"`{name}`" for name in columns if columns[name] and name not in table.columns]
    if missing and table.columns:
        has = ", ".join(table.columns)
        raise DataError(f"{table.name}: the grader needs {' and '.join(missing)}; it has {has}")
    if "pass_rate" in {*table.columns} - {*columns} and "drawn" not in table.columns:
        log.warning("%s: `pass_rate` is not used, for there is no column `drawn`", table.name)
    if not table.columns:  # there are no rows
        return ProblemSet.of([])
    schema = Schema.of(table.name, table.columns, problem_column, answer_column)
    kept = among(columns, table.columns)
    problems = [_problem(row, schema, instruction, system_prompt, kept) for row in table.rows]
    if instruction and any(instruction not in problem.question for problem in problems):
        log.warning("%s: `data.instruction` is not added, for it has conversations", table.name)
    return ProblemSet.of(problems, schema.describe())


def read_source(
    source: str, data: DataSettings | SourceSettings, split: str, columns: Columns = NO_COLUMNS
) -> ProblemSet:
    """Read the problems of a source as the section `data` says; see `read_problems`."""
    if differs(data, "problems"):
        log.warning("%s: `data.problems` is for built-in tasks; all problems are read", source)
    return read_problems(
        source,
        split=split,
        subset=data.subset,
        problem_column=data.problem_column,
        answer_column=data.answer_column,
        instruction=data.instruction,
        system_prompt=data.system_prompt,
        environment=data.source(),
        columns=columns,
    )


def check_references(problems: Sequence[Problem], grader: GraderSettings, source: str) -> None:
    """Refuse problems whose references the grader cannot read, and log a few of them.

    Raises:
        DataError: More than `MOST_UNREADABLE` of them cannot be read; it shows examples.
    """
    unread = {p.answer: why for p in problems if (why := grader.why_unreadable(p.answer))}
    count = sum(problem.answer in unread for problem in problems)
    if not count:
        return
    shown = "; ".join(f"{answer[:80]!r}: {why}" for answer, why in list(unread.items())[:3])
    said = f"{source}: {count:,} of {len(problems):,} reference answers cannot be graded ({shown})"
    if count > MOST_UNREADABLE * len(problems):
        advice = "is `data.answer_column` the right one, and `grading.type` the right grader?"
        raise DataError(f"{said}; {advice}")
    log.warning("%s; no response to these is correct", said)


def _asked_by(environment: EnvironmentSource, system_prompt: str) -> Iterable[Problem]:
    """Read the questions of an environment; the answer to each is the row that it scores by."""
    for question in environment.open().questions():
        messages = with_system_prompt(question.messages, system_prompt)
        yield Problem(problem_key(messages), messages, question.row, environment.name)


def level_of(row: Row) -> int | None:
    """Return the difficulty: 5, 5.0, "5" and "Level 5" are 5, anything else ("Level ?") is None."""
    written = str(row.cells.get("level")).strip()
    number = re.fullmatch(r"(?:level\s*)?(\d{1,9})(?:\.0)?", written, re.IGNORECASE)
    return int(number[1]) if number else None


def _measured(row: Row) -> tuple[float, float]:
    """Return how many responses were correct, and how many drawn; 0 and 0 if not measured."""
    rate, drawn = row.cells.get("pass_rate"), row.cells.get("drawn")
    if not isinstance(rate, int | float) or not isinstance(drawn, int | float):
        return 0.0, 0.0
    is_rate = 0 <= rate <= 1 and 0 < drawn <= MOST_DRAWN
    return (float(rate * drawn), float(drawn)) if is_rate else (0.0, 0.0)


def _problem(
    row: Row, schema: Schema, instruction: str, system_prompt: str, columns: Sequence[str]
) -> Problem:
    refuse_more_than_text(row, row.cells)
    refuse_more_than_text(row, row.cells.get("extra_info"))
    messages = schema.messages(row, instruction)
    if found := _PLACEHOLDER.search(" ".join(message["content"] for message in messages)):
        raise row.error("a problem must be text alone, without anything in place of", found[0])
    messages = with_system_prompt(messages, system_prompt)
    key = row.text("key") or problem_key(messages)
    source = row.text("data_source") or row.note("source")
    subject = row.note("subject") or row.note("type") or row.note("problem_type")
    answer, solution = schema.answer_of(row)
    solution = row.note("solution") or solution
    kept = {name: row.cells.get(name) for name in columns}
    about = (source, level_of(row), subject, solution, _measured(row), kept)
    return Problem(key, messages, answer, *about)
