"""Problems from a parquet file, a JSON Lines file or a data set on the hub.

Two schemas are recognised by their columns. verl's has `prompt` (a list of {role, content}) and
`reward_model` ({ground_truth, ...}); where both fit, it is taken. The plain one has `problem` and
`answer`, or what the caller names instead. Both may have `data_source`, `level` (5 or "Level 5"),
`subject`, `solution` and `key`, which then names the problem; other columns are not used.
"""

import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rollwise.config import ENVIRONMENT
from rollwise.environments import EnvironmentSource
from rollwise.errors import DataError, one_line
from rollwise.tasks.problem import Message, Problem, problem_key, with_system_prompt

FILE_SUFFIXES = (".parquet", ".jsonl", ".json")
VERL_COLUMNS = ("prompt", "reward_model")
OPTIONAL_COLUMNS = ("data_source", "level", "subject", "solution", "key")


@dataclass(frozen=True)
class ProblemSet:
    """What was read from one source, and what became of the rest.

    Attributes:
        problems: Those kept, in the order of the source; no two have the same key.
        counts: Rows by what became of them: `read` = `kept` + `duplicates` (of a problem kept) +
            `missing_answers` + `empty_problems`. Of the duplicates, `conflicting_answers` have
            another answer than the problem kept.
    """

    problems: list[Problem]
    counts: dict[str, int]

    @classmethod
    def of(cls, problems: list[Problem]) -> "ProblemSet":
        """Drop and count what is empty, lacks its answer, or came before."""
        return _keep_first(problems)

    @classmethod
    def join(cls, sets: Iterable["ProblemSet"]) -> "ProblemSet":
        """Put several sources together; of a problem that several have, the first is kept."""
        sources = list(sets)
        found = _keep_first(problem for source in sources for problem in source.problems)
        counts = dict(found.counts)
        for source in sources:
            for name in counts.keys() - {"kept"}:
                counts[name] += source.counts[name]
            counts["read"] -= len(source.problems)
        return cls(found.problems, counts)

    def describe(self) -> str:
        """Say in one line what was read, dropped and kept: for a log."""
        reasons = {
            "duplicates": "duplicate",
            "conflicting_answers": "of them with another answer",
            "missing_answers": "missing answer",
            "empty_problems": "empty problem",
        }
        parts = [f"{self.counts['read']:,} read"]
        for name, words in reasons.items():
            count = self.counts[name]
            plural = "s" if count > 1 and name != "conflicting_answers" else ""
            parts += [f"{count:,} {words}{plural}"] if count else []
        return f"{', '.join(parts)}; {self.counts['kept']:,} kept"


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
) -> ProblemSet:
    """Read the problems of `source`; each is kept once, the first time it comes.

    Args:
        source: A .parquet, .jsonl or .json (JSON Lines too) file, `environment`, else a data set on
            the hub.
        split: Of a data set on the hub or of an environment; a file has no splits.
        subset: Of a data set on the hub that has several (its configuration).
        problem_column: Where the plain schema has its problems; None or "" is `problem`.
        answer_column: Where the plain schema has its answers; None or "" is `answer`.
        instruction: Put below each problem of the plain schema; verl's prompts have their own.
        system_prompt: What is said first to a problem that has no system message.
        environment: Whose questions are read where `source` is `environment`.

    Raises:
        DataError: A source that cannot be read, of neither schema, or with a malformed row.
        ConfigError: The environment cannot be opened.
    """
    if source == ENVIRONMENT and environment is not None:
        return _keep_first(_asked_by(environment, split, system_prompt))
    question, answer = problem_column or "problem", answer_column or "answer"
    table = _read_table(source, split, subset, {*VERL_COLUMNS, question, answer, *OPTIONAL_COLUMNS})
    is_renamed = bool(problem_column or answer_column)
    if not is_renamed and set(VERL_COLUMNS) <= set(table.columns):
        pairs = ((row, row.prompt(question), row.ground_truth()) for row in table.rows)
    else:
        table.require(question, answer)
        pairs = ((row, row.question(question, instruction), row.text(answer)) for row in table.rows)
    return _keep_first(row.problem(asked, truth, system_prompt) for row, asked, truth in pairs)


def _asked_by(environment: EnvironmentSource, split: str, system_prompt: str) -> Iterable[Problem]:
    """The questions of an environment; the answer to each is the row that it scores by."""
    for question in environment.open().questions(split):
        messages = with_system_prompt(question.messages, system_prompt)
        yield Problem(problem_key(messages), messages, question.row, environment.name)


def _keep_first(problems: Iterable[Problem]) -> ProblemSet:
    """Drop and count what is empty, lacks its answer, or came before."""
    dropped = ("duplicates", "conflicting_answers", "missing_answers", "empty_problems")
    counts = dict.fromkeys(("read", *dropped, "kept"), 0)
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
    return ProblemSet(list(kept.values()), counts)


@dataclass(frozen=True)
class _Row:
    """A row's cells, and the place that an error names."""

    place: str
    cells: dict[str, Any]

    def text(self, column: str) -> str:
        """The text or number in a cell, as text; "" where there is none."""
        return self._as_text(column, self.cells.get(column))

    def _as_text(self, name: str, value: Any) -> str:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if value is None or (is_number and value != value):  # a missing number is written as NaN
            return ""
        if is_number or isinstance(value, str):
            return str(value)
        raise self._error(f"`{name}` must be text or a number", value)

    def _error(self, must: str, value: Any) -> DataError:
        shown = textwrap.shorten(repr(value), 80, placeholder=" ...")
        return DataError(f"{self.place}: {must}, got {type(value).__name__}: {shown}")

    def question(self, column: str, instruction: str) -> tuple[Message, ...]:
        """The plain schema's problem as a conversation; () where there is none."""
        question = self.text(column)
        below = f"\n\n{instruction}" if instruction else ""
        return ({"role": "user", "content": question + below},) if question.strip() else ()

    def prompt(self, plain: str) -> tuple[Message, ...]:
        """The messages of verl's schema; () where there are none."""
        prompt = self.cells.get("prompt")
        if prompt is None and self.cells.get(plain) is not None:
            raise self._error(
                f"has `{plain}` and no `prompt`, where other rows are in verl's schema; give each "
                "schema a file of its own",
                self.cells[plain],
            )
        if not isinstance(prompt, list | None):
            raise self._error("`prompt` must be a list of messages {role, content}", prompt)
        return tuple(self._message(message) for message in prompt or ())

    def _message(self, message: Any) -> Message:
        cells = message if isinstance(message, dict) else {}
        role, content = cells.get("role"), cells.get("content")
        if isinstance(role, str) and isinstance(content, str):
            return {"role": role, "content": content}
        raise self._error("a message of `prompt` must have a role and a content, as text", message)

    def ground_truth(self) -> str:
        """The answer of verl's schema; "" where there is none."""
        reward_model = self.cells.get("reward_model")
        if not isinstance(reward_model, dict | None):
            raise self._error("`reward_model` must be an object {ground_truth}", reward_model)
        return self._as_text("ground_truth", (reward_model or {}).get("ground_truth"))

    def note(self, column: str) -> str:
        """A text that may be there; "" where it is not, or is no text."""
        value = self.cells.get(column)
        return value if isinstance(value, str) else ""

    def level(self) -> int | None:
        """The difficulty: 5, 5.0, "5" and "Level 5" are 5, anything else ("Level ?") is None."""
        written = str(self.cells.get("level")).strip()
        number = re.fullmatch(r"(?:level\s*)?(\d+)(?:\.0)?", written, re.IGNORECASE)
        return int(number[1]) if number else None

    def problem(self, messages: tuple[Message, ...], answer: str, system_prompt: str) -> Problem:
        """Put together what the row says, valid or not."""
        messages = with_system_prompt(messages, system_prompt)
        key = self.text("key") or problem_key(messages)
        source, notes = self.text("data_source"), (self.note("subject"), self.note("solution"))
        return Problem(key, messages, answer, source, self.level(), *notes)


@dataclass(frozen=True)
class _Table:
    name: str
    columns: list[str]
    rows: Iterable[_Row]

    def require(self, *plain: str) -> None:
        """Refuse columns that are not of the `plain` schema; no row and no column is no error."""
        if self.columns and not set(plain) <= set(self.columns):
            raise DataError(
                f"{self.name}: its columns ({', '.join(self.columns)}) fit neither schema: verl's "
                f"has {' and '.join(VERL_COLUMNS)}, the plain one {' and '.join(plain)} "
                "(problem_column and answer_column name others)"
            )


def is_path(source: str | Path) -> bool:
    """Tell a file, there or not, from the name of a data set on the hub."""
    path = Path(source).expanduser()
    begins_as_path = isinstance(source, Path) or source.startswith((".", "/", "~"))
    return begins_as_path or path.suffix.lower() in FILE_SUFFIXES or path.exists()


def _read_table(source: str | Path, split: str, subset: str | None, wanted: set[str]) -> _Table:
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if not is_path(source):
        return _read_hub(str(source), split, subset, wanted)
    if not path.exists():
        raise DataError(f"no such file: {path}")
    if suffix not in FILE_SUFFIXES:
        raise DataError(f"{path}: must be a file that ends in {', '.join(FILE_SUFFIXES)}")
    return _read_parquet(path, wanted) if suffix == ".parquet" else _read_json_lines(path)


def _read_parquet(path: Path, wanted: set[str]) -> _Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = list(file.schema_arrow.names)
            rows = file.read(columns=[name for name in columns if name in wanted]).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet: {one_line(error)}") from error
    return _Table(str(path), columns, _number_rows(str(path), rows))


def _read_json_lines(path: Path) -> _Table:
    try:
        with path.open("rb") as file:  # bytes: a wrong encoding is an error of its line
            lines = [(i, line) for i, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    rows = [_read_line(f"{path}, line {i}", line) for i, line in lines]
    columns = dict.fromkeys(column for row in rows for column in row.cells)
    return _Table(str(path), list(columns), rows)


def _read_line(place: str, line: bytes) -> _Row:
    try:
        cells = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: broken JSON: {one_line(error)}") from error
    if not isinstance(cells, dict):
        raise DataError(f"{place}: must be a JSON object, got {type(cells).__name__}")
    return _Row(place, cells)


def _read_hub(name: str, split: str, subset: str | None, wanted: set[str]) -> _Table:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{name!r} is no local file, and a data set on the hub is read with the library "
            'datasets: pip install "rollwise[hub]"'
        ) from error
    try:
        dataset = datasets.load_dataset(name, **({"name": subset} if subset else {}), split=split)
    except Exception as error:  # the library's errors (network, cache, splits) share no type
        raise DataError(
            f"the data set {name!r} (split {split!r}) could not be loaded from the hub: "
            f"{one_line(error)}; a local parquet or JSON Lines file can be given instead"
        ) from error
    columns = list(dataset.column_names)
    rows = dataset.select_columns([column for column in columns if column in wanted])
    return _Table(name, columns, _number_rows(name, rows))


def _number_rows(name: str, rows: Iterable[dict[str, Any]]) -> Iterable[_Row]:
    return (_Row(f"{name}, row {i} (from 0)", row) for i, row in enumerate(rows))
