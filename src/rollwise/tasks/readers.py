"""Problems from a file, a data set on the hub or an environment.

Two schemas are recognized by their columns. verl's has `prompt` (a list of {role, content}) and
`reward_model` ({ground_truth, ...}), and takes precedence. The plain one has `problem` and
`answer`, or the columns that the caller names instead. Both may have `data_source`, `level` (5 or
"Level 5"), `subject`, `solution`, `pass_rate` with `drawn` (how many responses it was measured
with), and `key`, which then names the problem; other columns are not used.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollwise.config import ENVIRONMENT
from rollwise.config.data import DataSettings
from rollwise.config.drawing import SourceSettings
from rollwise.environments import EnvironmentSource
from rollwise.errors import DataError
from rollwise.tasks.problem import Message, Problem, problem_key, with_system_prompt
from rollwise.tasks.tables import Row, read_table

VERL_COLUMNS = ("prompt", "reward_model")
MOST_DRAWN = 2**53
"""No pass rate is measured with more responses than this."""
OPTIONAL_COLUMNS = ("data_source", "level", "subject", "solution", "key", "pass_rate", "drawn")


@dataclass(frozen=True)
class ProblemSet:
    """The problems of a source, and how many rows were dropped and why.

    Attributes:
        problems: Those kept, in the order of the source; no two have the same key.
        counts: Numbers of rows: `read` = `kept` + `duplicates` (of a problem kept) +
            `missing_answers` + `empty_problems`. Of the duplicates, `conflicting_answers` have
            a different answer from the problem kept.
    """

    problems: list[Problem]
    counts: dict[str, int]

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> "ProblemSet":
        """Drop and count problems that are empty, lack their answer, or came before."""
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
        return cls(list(kept.values()), counts)

    @classmethod
    def join(cls, sets: Iterable["ProblemSet"]) -> "ProblemSet":
        """Join several sources; if several have a problem, the first is kept.

        Raises:
            DataError: Sources have different problems of one key.
        """
        sources = list(sets)
        asked: dict[str, tuple[Message, ...]] = {}
        for problem in (problem for source in sources for problem in source.problems):
            if asked.setdefault(problem.key, problem.messages) != problem.messages:
                raise DataError(f"the sources have different problems of the key {problem.key!r}")
        found = cls.of(problem for source in sources for problem in source.problems)
        counts = dict(found.counts)
        for source in sources:
            for name in counts.keys() - {"kept"}:
                counts[name] += source.counts[name]
            counts["read"] -= len(source.problems)
        return cls(found.problems, counts)

    def describe(self) -> str:
        """Return a line for a log: what was read, dropped and kept."""
        parts = [f"{self.counts['read']:,} read"]
        for name in ("duplicates", "conflicting_answers", "missing_answers", "empty_problems"):
            if count := self.counts[name]:
                words = name.replace("_", " ")
                parts.append(f"{count:,} {words if count > 1 else words.removesuffix('s')}")
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
    columns: Collection[str] = (),
) -> ProblemSet:
    """Read the problems of a source; each is kept once, where it comes first.

    Args:
        source: A .parquet, .jsonl or .json (JSON Lines too) file, `environment`, or else a data set
            on the hub.
        split: The split of a data set on the hub; files and environments have none.
        subset: The configuration of a data set on the hub that has several.
        problem_column: The plain schema's column of problems; None or "" means `problem`.
        answer_column: The plain schema's column of answers; None or "" means `answer`.
        instruction: Put below each problem of the plain schema; verl's prompts have their own.
        system_prompt: The first message of each problem that has no system message.
        environment: The environment whose questions are read if `source` is `environment`.
        columns: Further columns that problems keep, where a row has them.

    Raises:
        DataError: The source cannot be read, has neither schema, or has a malformed row.
        ConfigError: The environment cannot be opened.
    """
    if source == ENVIRONMENT and environment is not None:
        return ProblemSet.of(_asked_by(environment, system_prompt))
    question, answer = problem_column or "problem", answer_column or "answer"
    wanted = {*VERL_COLUMNS, question, answer, *OPTIONAL_COLUMNS, *columns}
    table = read_table(source, split, subset, wanted)
    is_renamed = bool(problem_column or answer_column)
    if not is_renamed and set(VERL_COLUMNS) <= set(table.columns):
        pairs = ((row, _prompt(row, question), _ground_truth(row)) for row in table.rows)
    else:
        if table.columns and not {question, answer} <= set(table.columns):  # none without rows
            raise DataError(
                f"{table.name}: its columns ({', '.join(table.columns)}) fit neither schema: "
                f"verl's has {' and '.join(VERL_COLUMNS)}, the plain one {question} and {answer} "
                "(data.problem_column and data.answer_column name others)"
            )
        pairs = (
            (row, _question(row, question, instruction), row.answer(answer, row.cells.get(answer)))
            for row in table.rows
        )
    kept = [name for name in columns if name in table.columns]
    return ProblemSet.of(
        _problem(row, asked, truth, system_prompt, kept) for row, asked, truth in pairs
    )


def read_source(
    source: str, data: DataSettings | SourceSettings, split: str, columns: Collection[str] = ()
) -> ProblemSet:
    """Read the problems of a source as the section `data` says; see `read_problems`."""
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


def _asked_by(environment: EnvironmentSource, system_prompt: str) -> Iterable[Problem]:
    """Read the questions of an environment; the answer to each is the row that it scores by."""
    for question in environment.open().questions():
        messages = with_system_prompt(question.messages, system_prompt)
        yield Problem(problem_key(messages), messages, question.row, environment.name)


def _question(row: Row, column: str, instruction: str) -> tuple[Message, ...]:
    """Return the problem of the plain schema as a conversation; () if there is none."""
    question = row.text(column)
    below = f"\n\n{instruction}" if instruction else ""
    return ({"role": "user", "content": question + below},) if question.strip() else ()


def _prompt(row: Row, plain: str) -> tuple[Message, ...]:
    """Return the messages of verl's schema; () if there are none."""
    prompt = row.cells.get("prompt")
    if prompt is None and row.cells.get(plain) is not None:
        raise row.error(
            f"has `{plain}` and no `prompt`, where other rows are in verl's schema; give each "
            "schema a file of its own",
            row.cells[plain],
        )
    if not isinstance(prompt, list | None):
        raise row.error("`prompt` must be a list of messages {role, content}", prompt)
    return tuple(_message(row, message) for message in prompt or ())


def _message(row: Row, message: Any) -> Message:
    cells = message if isinstance(message, dict) else {}
    role, content = cells.get("role"), cells.get("content")
    if isinstance(role, str) and isinstance(content, str):
        return {"role": role, "content": content}
    raise row.error("a message of `prompt` must have a role and a content, as text", message)


def _ground_truth(row: Row) -> str:
    """Return the answer of verl's schema; "" if there is none."""
    reward_model = row.cells.get("reward_model")
    if not isinstance(reward_model, dict | None):
        raise row.error("`reward_model` must be an object {ground_truth}", reward_model)
    return row.answer("ground_truth", (reward_model or {}).get("ground_truth"))


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
    row: Row, messages: tuple[Message, ...], answer: str, system_prompt: str, columns: list[str]
) -> Problem:
    """Make a problem of a row, valid or not."""
    messages = with_system_prompt(messages, system_prompt)
    key = row.text("key") or problem_key(messages)
    source, notes = row.text("data_source"), (row.note("subject"), row.note("solution"))
    kept = {name: row.cells.get(name) for name in columns}
    return Problem(key, messages, answer, source, level_of(row), *notes, _measured(row), kept)
