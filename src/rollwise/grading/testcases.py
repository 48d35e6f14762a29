"""The tests of a code problem, as data sets write them."""

import builtins
import json
import symtable
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from rollwise.grading.conversation import LONGEST_OUTPUT, Conversation
from rollwise.grading.program import decode, encode

Start = Callable[[dict[str, Any]], AbstractContextManager[Conversation]]
"""Starts a script of `program.py` in a sandbox; what it says may be anything."""


@dataclass(frozen=True)
class ProgramTests:
    """Tests of a program that reads stdin: an output for each input."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def passed_by(self, code: str, start: Start) -> bool:
        with start({"mode": "program", "code": code}) as talk:
            for given, expected in zip(self.inputs, self.outputs, strict=True):
                printed = talk.ask({"stdin": given}, LONGEST_OUTPUT)
                if not isinstance(printed, str) or not same_output(printed, expected):
                    return False
        return True


@dataclass(frozen=True)
class CallTests:
    """Tests of one function: what it returns for each list of arguments."""

    name: str
    arguments: tuple[list[Any], ...]
    expected: tuple[Any, ...]

    def passed_by(self, code: str, start: Start) -> bool:
        with start({"mode": "functions", "code": code}) as talk:
            if "value" not in talk.receive():
                return False
            for arguments, expected in zip(self.arguments, self.expected, strict=True):
                call = {"call": self.name, "args": [*map(encode, arguments)], "kwargs": encode({})}
                returned = value_of(talk.ask(call)["value"])
                if expected not in (returned, [returned]):  # [x] also means x
                    return False
        return True


@dataclass(frozen=True)
class AssertTests:
    """Statements that raise if a program is wrong, and names of its functions that they call."""

    code: str
    functions: tuple[str, ...]

    def passed_by(self, code: str, start: Start) -> bool:
        """Run the asserts in a sandbox of their own, and carry their calls to the program's."""
        with (
            start({"mode": "tests", "code": self.code, "functions": self.functions}) as asserts,
            start({"mode": "functions", "code": code}) as program,
        ):
            if "value" not in program.receive():
                return False
            message, reply = asserts.receive(), {}
            while "call" in message:
                reply = program.ask(message)
                message = asserts.ask(reply)
        if "error" in message and "error" not in reply:
            raise RuntimeError(f"tests cannot be run: {message['error']}")
        return message["passed"] is True


def read_tests(text: str) -> ProgramTests | CallTests | AssertTests:
    """Read tests in one of three forms of JSON.

    - `{"inputs": [...], "outputs": [...]}`: stdin and stdout, each a text or a list of lines;
    - the same with `"fn_name"`: an input is a list of arguments, or a text with one argument in
      JSON per line; an output is a value, or a text with one in JSON;
    - `{"assert_case": [...]}`, or the list alone: statements such as `assert add(1, 2) == 3`.

    Raises:
        ValueError: Says what is wrong.
    """
    try:
        tests = json.loads(text)
    except ValueError as error:
        raise ValueError(f"tests must be JSON: {error}") from None
    asserts = tests.get("assert_case") if isinstance(tests, dict) else tests
    if asserts:
        return _read_asserts(asserts)
    if not isinstance(tests, dict) or not {"inputs", "outputs"} <= tests.keys():
        raise ValueError("tests need `inputs` and `outputs`, or `assert_case`")
    inputs, outputs = tests["inputs"], tests["outputs"]
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise ValueError("`inputs` and `outputs` must be lists")
    if not inputs or len(inputs) != len(outputs):
        raise ValueError(
            f"each input needs its output, got {len(inputs)} inputs and {len(outputs)} outputs"
        )
    if name := tests.get("fn_name"):
        return CallTests(name, tuple(map(_arguments, inputs)), tuple(map(_value, outputs)))
    return ProgramTests(tuple(map(_text, inputs)), tuple(map(_text, outputs)))


def _text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "\n".join(map(str, lines))


def _arguments(given: str | list[Any]) -> list[Any]:
    if isinstance(given, str):
        return [json.loads(line) for line in given.strip("\n").split("\n")]
    if isinstance(given, list):
        return given
    raise ValueError(f"arguments must be a list, or text with one in a line, got {given!r}")


def _value(given: Any) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def _read_asserts(statements: str | list[str]) -> AssertTests:
    code = _text(statements)
    try:
        tables = [symtable.symtable(code, "tests", "exec")]
    except SyntaxError as error:
        raise ValueError(f"tests are not valid Python: {error}") from None
    for table in tables:
        tables += table.get_children()
    names = [name for table in tables for name in table.get_symbols() if name.is_global()]
    own = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
    functions = {name.get_name() for name in names} - own - {"math", *dir(builtins)}
    if not functions:
        raise ValueError("tests call no function of the response")
    return AssertTests(code, tuple(sorted(functions)))


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs have the same lines; numbers are compared by value.

    White space at the ends of lines, and empty lines at the end, do not count, as in LiveCodeBench.
    """
    first, second = (
        [line.strip() for line in text.strip().split("\n")] for text in (printed, expected)
    )
    return len(first) == len(second) and all(map(_same_line, first, second))


def _same_line(first: str, second: str) -> bool:
    words, others = first.split(), second.split()
    return len(words) == len(others) and all(map(_same_word, words, others))


def _same_word(first: str, second: str) -> bool:
    try:
        numbers = "_" not in first + second  # which Decimal overlooks
        return first == second or (numbers and Decimal(first) == Decimal(second))
    except InvalidOperation:
        return False


def value_of(data: Any) -> Any:
    """Return the value that `program.encode` wrote, as JSON has it; ValueError for a set.

    Only texts are hashed, since numbers can be forged to collide.
    """
    if not isinstance(data, list):
        return data
    kind, content = data
    if kind in ("int", "float"):
        return decode(data)
    if kind == "dict":
        return {str(value_of(key)): value_of(item) for key, item in content}
    if kind in ("list", "tuple"):
        return [value_of(item) for item in content]
    raise ValueError(f"a {kind!r} is not in JSON")
