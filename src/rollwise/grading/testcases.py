"""The tests of a code problem, as data sets write them."""

import ast
import builtins
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rollwise.grading.comparing import same_output, same_value, value_of
from rollwise.grading.conversation import LONGEST_OUTPUT, Conversation
from rollwise.grading.plain_data import encode

Start = Callable[[dict[str, Any]], AbstractContextManager[Conversation]]
"""Starts a script of `program.py` in a sandbox; what it says may be anything."""

_WORD = re.compile(r"[^\W\d]\w*")
_REPLACES = re.compile(
    r"\bmock\.patch\b|\bfrom (unittest\.)?mock import\b.*\bpatch\b|\bmonkeypatch\b", re.DOTALL
)
_NEEDS_PYTEST = re.compile(
    r"^\s*(import|from)\b.*\bpytest\b|^\s*def test\w*\((?!\)|self\))", re.MULTILINE
)


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
    """Tests of one function: what it returns for each list of arguments.

    Where it returns None, it is what it made of its first argument. If `is_wrapped`, the value of
    an output may be in a list of its own, as in APPS.
    """

    name: str
    arguments: tuple[list[Any], ...]
    expected: tuple[Any, ...]
    is_wrapped: bool = False

    def passed_by(self, code: str, start: Start) -> bool:
        with start({"mode": "functions", "code": code}) as talk:
            if "value" not in talk.receive():
                return False
            for arguments, expected in zip(self.arguments, self.expected, strict=True):
                reply = talk.call(self.name, *map(encode, arguments))
                returned = reply["value"]
                if returned is None and expected is not None and arguments:
                    returned = reply["changed"][1] if "changed" in reply else encode(arguments[0])
                found = value_of(returned)
                values = [expected, *(expected if self.is_wrapped else [])]
                if not any(same_value(found, value) for value in values):
                    return False
        return True


@dataclass(frozen=True)
class AssertTests:
    """Python that raises if a program is wrong, or defines tests, and uses the program's objects.

    It runs in a sandbox of its own. `prompt` is code that the program begins with.
    """

    code: str
    prompt: str = ""

    def __post_init__(self) -> None:
        try:
            compile(self.code, "tests", "exec", ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"tests are not valid Python: {error}") from None
        if _REPLACES.search(self.code):
            raise ValueError(
                "tests replace parts of the program (`patch`), which they cannot reach"
            )

    def passed_by(self, code: str, start: Start) -> bool:
        """Run the tests, and carry messages to the program's sandbox and back."""
        words = {*_WORD.findall(self.code)} - {*dir(builtins)}
        packages = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
        first = {
            "mode": "tests",
            "code": self.code,
            "names": sorted(word for word in words if not word.startswith("__")),
            "needs_pytest": bool(_NEEDS_PYTEST.search(self.code)),
            "folders": [path for path in dict.fromkeys(packages) if os.path.isdir(path)],
        }
        with (
            start(first) as tests,
            start({"mode": "functions", "code": f"{self.prompt}\n{code}"}) as program,
        ):
            if "value" not in program.receive():
                return False
            message = tests.receive()
            while "passed" not in message:
                message = tests.ask(program.ask(message))
        if message["complaint"]:
            raise RuntimeError(f"tests cannot be run: {message['complaint']}")
        return message["passed"] is True


Tests = ProgramTests | CallTests | AssertTests


def read_tests(text: str) -> Tests:
    """Read tests in one of the forms of data sets: JSON, or Python.

    - `{"inputs": [...], "outputs": [...]}` (APPS, TACO): stdin and stdout, each a text or a list of
      lines;
    - the same with `"fn_name"`: an input is a list of arguments, and an output a value, alone or in
      a list; or an input is a text with one argument in JSON per line, and an output a text in JSON
      (LiveCodeBench);
    - `[{"input": ..., "output": ..., "testtype": "stdin" or "functional"}, ...]` (LiveCodeBench),
      with `"fn_name"`, or `"func_name"` in its `"metadata"`, if functional;
    - `["assert add(1, 2) == 3", ...]`, the same as `"assert_case"` or `"test_list"` with
      `"test_setup_code"` and `"test_imports"` (MBPP), or Python (BigCodeBench, KodCode);
    - `{"test": Python, "entry_point": "add", "prompt": Python}` (HumanEval, LeetCodeDataset).

    Raises:
        ValueError: Says what is wrong.
    """
    try:
        tests = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        statements = statements_of(text)
        if any(isinstance(s, ast.Assert | ast.FunctionDef | ast.ClassDef) for s in statements):
            return AssertTests(text)
        raise ValueError(f"tests must be JSON or Python: {error}") from None
    return _read(tests)


def statements_of(code: str) -> list[ast.stmt]:
    """Return the statements of a program; none if it is not valid Python."""
    try:
        compile(code, "program", "exec")
        return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _read(tests: Any) -> Tests:
    if isinstance(tests, str):
        return read_tests(tests)
    if isinstance(tests, list) and tests and all(isinstance(test, dict) for test in tests):
        return _read_cases(tests, "")
    if isinstance(tests, list):
        tests = {"test_list": tests}
    if not isinstance(tests, dict):
        raise ValueError(f"tests must be a list or an object, got {tests!r:.80}")
    if "input_output" in tests:
        return _read(tests["input_output"])
    if cases := tests.get("test_cases"):
        return _read_cases(cases, tests.get("fn_name") or "")
    if code := tests.get("assert_case") or tests.get("test_list"):
        before = [tests.get("test_imports") or [], tests.get("test_setup_code") or ""]
        return AssertTests("\n".join(map(_text, [*before, code])))
    if code := tests.get("test"):
        return _read_check(code, tests.get("entry_point") or "", tests.get("prompt") or "")
    if not {"inputs", "outputs"} <= tests.keys():
        raise ValueError(
            "tests need `inputs` and `outputs`, `input` and `output` in each of a list, "
            f"`test_list`, `assert_case` or `test`; got {', '.join(tests) or 'nothing'}"
        )
    return _read_pairs(tests["inputs"], tests["outputs"], tests.get("fn_name"))


def _read_cases(cases: Any, name: str) -> Tests:
    """Read tests of which each has an input and an output."""
    for i, case in enumerate(cases):
        if not isinstance(case, dict) or not {"input", "output"} <= case.keys():
            raise ValueError(f"test {i} needs `input` and `output`, got {case!r:.80}")
        name = name or case.get("fn_name") or (case.get("metadata") or {}).get("func_name") or ""
    kind = cases[0].get("testtype") or cases[0].get("type") or "stdin"
    if kind not in ("stdin", "stdin_stdout") and not name:
        raise ValueError(f"tests of the type {kind!r} need `fn_name`, the function's name")
    is_stdin = kind in ("stdin", "stdin_stdout") and "testtype" in cases[0]
    inputs, outputs = [case["input"] for case in cases], [case["output"] for case in cases]
    return _read_pairs(inputs, outputs, None if is_stdin else name)


def _read_pairs(inputs: Any, outputs: Any, name: str | None) -> Tests:
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise ValueError("`inputs` and `outputs` must be lists")
    if not inputs or len(inputs) != len(outputs):
        raise ValueError(
            f"each input needs its output, got {len(inputs)} inputs and {len(outputs)} outputs"
        )
    if not name:
        return ProgramTests(tuple(map(_text, inputs)), tuple(map(_text, outputs)))
    if all(isinstance(given, str) for given in inputs):
        lines = [given.strip("\n").split("\n") for given in inputs]
        arguments = tuple([_value(line, "`inputs`") for line in given] for given in lines)
        expected = (
            v if not isinstance(v, str) else _value(v, "`outputs`", Decimal) for v in outputs
        )
        return CallTests(name, arguments, tuple(expected))
    for given in inputs:
        if not isinstance(given, list):
            raise ValueError(f"arguments must be a list, or text with one in a line, got {given!r}")
    is_wrapped = all(isinstance(value, list) and len(value) == 1 for value in outputs)
    arguments = tuple([_as_argument(value) for value in row] for row in inputs)
    return CallTests(name, arguments, tuple(outputs), is_wrapped)


def _text(lines: Any) -> str:
    return "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _value(text: str, where: str, parse_float: Callable[[str], Any] = float) -> Any:
    try:
        return json.loads(text, parse_float=parse_float)
    except ValueError:
        raise ValueError(
            f"{where} must be JSON, where tests of a function are texts, got {text!r:.80}"
        ) from None


def _as_argument(value: Any) -> Any:
    """Undo what JSON made of an argument: decimals, and keys that are integers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_as_argument(item) for item in value]
    if isinstance(value, dict):
        has_numbers = all(key.lstrip("-").isdecimal() for key in value)
        return {int(k) if has_numbers else k: _as_argument(v) for k, v in value.items()}
    return value


def _read_check(code: str, entry_point: str, prompt: str) -> AssertTests:
    """Read tests as HumanEval has them: a function `check` of the function to test."""
    root = re.split(r"[(.]", entry_point)[0]
    stub = statements_of(prompt)
    helpers = [s for s in stub if getattr(s, "name", None) != root]
    tests = statements_of(code)
    defined = any(getattr(s, "name", None) == "check" for s in tests)
    called = any(isinstance(s, ast.Expr) and "check(" in ast.unparse(s) for s in tests)
    call = f"check({entry_point})" if entry_point and defined and not called else ""
    before = ast.unparse(ast.Module(helpers, []))
    return AssertTests("\n".join([before, code, call]), prompt if stub else "")
