"""Which columns hold a problem and its answer, as the data sets of the field name them."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollwise.answers import reference_answer
from rollwise.errors import DataError
from rollwise.tasks.problem import Message
from rollwise.tasks.tables import Row

PROBLEMS = ("problem", "Problem", "question", "Question", "prompt", "question_content")
ANSWERS = ("answer", "Answer", "final_answer", "expected_answer", "ground_truth")
TESTS = ("input_output", "tests", "test_list", "test", "public_test_cases")
SOLUTION = "solution"
"""The column that has the answer if no other has."""
VERL = ("prompt", "reward_model")
TURNS = ("0", "1")
"""Open-Reasoner-Zero's: a row is the list [question, answer], which `datasets` numbers."""
_BESIDE_TESTS = ("test_imports", "test_setup_code", "entry_point", "prompt")
_OF_CODE = (*TESTS, *_BESIDE_TESTS, "metadata", "starter_code")
COLUMNS = (*PROBLEMS, *ANSWERS, *_OF_CODE, SOLUTION, *VERL, *TURNS)
"""Columns that a `Schema` may read."""

NOT_SHOWN = (
    *("image", "images", "video", "videos", "audio", "audios"),
    *("tools", "tool_calls", "tools_kwargs", "interaction_kwargs"),
)
"""Names of what no model is shown here, in a row, in verl's `extra_info` and in a message."""
_HASHES = re.compile(r"####[ \t]*([^\n#]*[^\s#])\s*\Z")
_IN_NUMBER = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class Schema:
    """The columns of problems and answers, and in what form they were `seen` to be."""

    problem: str
    answer: str
    seen: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table: str, columns: Sequence[str], problem: str | None, answer: str | None
    ) -> "Schema":
        """Recognize the columns of a table; `problem` and `answer` are those that the user names.

        Raises:
            DataError: None fits, or several do; it names them and the setting that decides.
        """
        for known in (VERL, TURNS):
            if not (problem or answer) and set(known) <= set(columns):
                return cls(*known)
        asked = _one(table, columns, "problem", PROBLEMS, problem)
        rest = [name for name in columns if name not in (asked, SOLUTION)]
        by_solution = answer == SOLUTION or (not answer and {*rest}.isdisjoint((*ANSWERS, *TESTS)))
        if by_solution and SOLUTION in columns:
            return cls(asked, SOLUTION)
        return cls(asked, _one(table, rest, "answer", (*ANSWERS, *TESTS, SOLUTION), answer))

    def describe(self) -> str:
        """Return which column became what."""
        inner = {"reward_model": "reward_model.ground_truth"}.get(self.answer, self.answer)
        asked, answered = (self.seen.get(name, "") for name in (self.problem, self.answer))
        return f"columns: {self.problem}{asked} -> problem, {inner}{answered} -> answer"

    def messages(self, row: Row, instruction: str) -> tuple[Message, ...]:
        """Return a row's problem as a conversation; an instruction goes below one that is text."""
        cell = row.cells.get(self.problem)
        if self.problem == TURNS[0] and isinstance(cell, dict):
            cell = cell.get("value")
        if isinstance(cell, list):
            return tuple(_message(row, self.problem, message) for message in cell)
        if cell is None and self.answer == VERL[1] and row.cells.get("problem") is not None:
            raise row.error(
                "has `problem` and no `prompt`, where other rows are in verl's schema; give each "
                "schema a file of its own",
                row.cells["problem"],
            )
        question = row.checked_text(self.problem, cell, "text or a list of messages")
        if not question.strip():
            return ()
        if starter := row.note("starter_code").strip():
            self.seen[self.problem] = " + starter_code"
            question += f"\n\n```python\n{starter}\n```"
        below = f"\n\n{instruction}" if instruction else ""
        return ({"role": "user", "content": question + below},)

    def answer_of(self, row: Row) -> tuple[str, str]:
        """Return a row's answer, and the solution from which it was taken; "" where there is none.

        The answer is what follows `####` at the end (GSM8K; without commas in numbers), or the box
        of a `solution` (MATH).
        """
        cell = row.cells.get(self.answer)
        if self.answer in TESTS:
            return _tests(row, self.answer), ""
        if self.answer in (VERL[1], TURNS[1]):
            if not isinstance(cell, dict | None):
                raise row.error(f"`{self.answer}` must be an object {{ground_truth}}", cell)
            truth = (cell or {}).get("ground_truth")
            if self.answer == TURNS[1] and isinstance(truth, dict):
                truth = truth.get("value")
            return row.answer("ground_truth", truth), ""
        text = row.answer(self.answer, cell)
        if self.answer == SOLUTION and "\\boxed" in text:
            self.seen[self.answer] = " (in \\boxed{})"
            return reference_answer(text), text
        if found := _HASHES.search(text):
            self.seen[self.answer] = " (after ####)"
            return _IN_NUMBER.sub("", found[1]), text
        return text, ""


def _one(
    table: str, columns: Sequence[str], what: str, names: Collection[str], named: str | None
) -> str:
    """Return the one column that has a known name, or the one that the user names."""
    found = [column for column in columns if column in ([named] if named else names)]
    if len(found) == 1:
        return found[0]
    setting = f"`data.{what}_column` (--data.{what}_column NAME)"
    if found:
        raise DataError(f"{table}: is the {what} in {' or in '.join(found)}? Say so by {setting}")
    raise DataError(
        f"{table}: which column has the {what}? None of {', '.join(columns)} is "
        f"{named or ', '.join(names)}; name it by {setting}"
    )


def _message(row: Row, column: str, message: object) -> Message:
    cells = message if isinstance(message, dict) else {}
    role, content = cells.get("role"), cells.get("content")
    if isinstance(role, str) and isinstance(content, str):
        refuse_more_than_text(row, cells)
        return {"role": role, "content": content}
    raise row.error(f"a message of `{column}` must have a role and a content, as text", message)


def _tests(row: Row, column: str) -> str:
    """Return the tests of a program in a form that the grader of code reads; "" if there are none.

    They are as they are, or with what they need: columns beside MBPP's and HumanEval's tests, and
    the name of the function in LiveCodeBench's `metadata`.
    """
    tests = row.cells.get(column)
    if tests and column in ("test_list", "test"):
        return json.dumps({name: row.cells.get(name) for name in (*_BESIDE_TESTS, column)})
    if about := row.cells.get("metadata"):
        try:
            about = json.loads(about) if isinstance(about, str) else about
            if name := about.get("func_name"):
                cases = json.loads(tests) if isinstance(tests, str) else tests
                return json.dumps({"test_cases": cases, "fn_name": name})
        except (ValueError, AttributeError) as error:
            raise row.error(f"`{column}` and `metadata` must be JSON ({error})", about) from None
    return tests if isinstance(tests, str) else json.dumps(tests) if tests else ""


def refuse_more_than_text(row: Row, cells: Any) -> None:
    """Refuse a row, its `extra_info` or a message if it has what no model would be shown."""
    for name in NOT_SHOWN:
        value = cells.get(name) if isinstance(cells, dict) else None
        if value and value == value and value not in ("[]", "null", "{}"):
            raise row.error(
                f"has `{name}`, and the model reads text alone; take the row out, or `{name}` if "
                "the problem is whole without it",
                value,
            )
