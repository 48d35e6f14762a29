"""Grading code by running it against a problem's tests, inside a sandbox."""

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rollwise.grading.conversation import (
    LONGEST_OUTPUT,
    Conversation,
    NoReply,
    check_sandbox,
    sandboxed,
)
from rollwise.grading.program import encode
from rollwise.grading.program_usage import BUSY
from rollwise.grading.sandbox import ProgramLimits
from rollwise.grading.testcases import (
    AssertTests,
    CallTests,
    ProgramTests,
    read_tests,
    same_output,
    same_value,
    value_of,
)
from rollwise.grading.worker import GradeFunction, Limits
from rollwise.grading.worker_grader import WorkerGrader

OVERHEAD = 30.0
"""Seconds by the clock that a worker may take beyond a program's own, to start and compare."""

_FENCED = re.compile(r"^[ \t]*+```[^\n`]*+\n(.*?)(?:^[ \t]*+```|\Z)", re.DOTALL | re.MULTILINE)


def code_of(response: str) -> str:
    """Return a response's last fenced block, closed or not; all of it where there is none."""
    blocks = _FENCED.findall(response)
    return blocks[-1] if blocks else response


class CodeGrader(WorkerGrader):
    """Gives 1.0 to a response whose Python passes all tests of its problem, else 0.0.

    The program is that of `code_of`. The answers are the tests: see `read_tests`. It runs in a
    sandbox with the standard library alone, and what it prints or returns is compared outside. A
    program that takes too long, prints too much or crashes is incorrect; tests that cannot be read
    count as `failures`.

    Args:
        timeout: Seconds for all tests of one response: of processors while the program computes, so
            that other load on the machine changes no result, and by the clock while it sleeps. By
            the clock in all, ten times as many.
        workers: Programs that run at a time; None means one for each CPU, at most 16.
        uncontained: Run programs as this user in no sandbox: they can read and delete what this
            user can. For a machine that may be lost.

    Raises:
        ConfigError: No sandbox works here, and `uncontained` is not set.
        ValueError: A value out of range.
    """

    def __init__(
        self, timeout: float = 10.0, workers: int | None = None, *, uncontained: bool = False
    ) -> None:
        Limits(wall=timeout)  # checks it
        limits = Limits(wall=BUSY * timeout + OVERHEAD, cpu=timeout)
        if not uncontained:
            check_sandbox()
        load = functools.partial(_load, ProgramLimits(timeout, uncontained=uncontained))
        super().__init__(load, limits, workers)


def _load(limits: ProgramLimits) -> GradeFunction:
    """Make the function that grades programs in a worker."""

    def start(mode: str, code: str, **more: Any) -> AbstractContextManager[Conversation]:
        return sandboxed(limits, {"mode": mode, "code": code, **more})

    def grade(response: str, answer: str) -> float:
        tests, code = read_tests(answer), code_of(response)
        check = {ProgramTests: _prints, CallTests: _returns, AssertTests: _withstands}[type(tests)]
        try:
            return float(check(tests, code, start))  # type: ignore[operator]
        except (NoReply, TypeError, ValueError, RecursionError):  # no reply, or no plain data
            return 0.0

    return grade


Start = Callable[..., AbstractContextManager[Conversation]]


def _prints(tests: ProgramTests, code: str, start: Start) -> bool:
    with start("program", code) as talk:
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            printed = talk.ask({"stdin": given}, LONGEST_OUTPUT)
            if not isinstance(printed, str) or not same_output(printed, expected):
                return False
    return True


def _returns(tests: CallTests, code: str, start: Start) -> bool:
    with start("functions", code) as talk:
        if "value" not in _reply(talk.receive()):
            return False
        for arguments, expected in zip(tests.arguments, tests.expected, strict=True):
            call = {"call": tests.name, "args": [*map(encode, arguments)], "kwargs": encode({})}
            reply = _reply(talk.ask(call))
            if "value" not in reply or not same_value(value_of(reply["value"]), expected):
                return False
    return True


def _withstands(tests: AssertTests, code: str, start: Start) -> bool:
    """Run the asserts in a sandbox of their own, and carry their calls to the program's."""
    with (
        start("tests", tests.code, functions=tests.functions) as asserts,
        start("functions", code) as program,
    ):
        if "value" not in _reply(program.receive()):
            return False
        message = asserts.receive()
        while "call" in message:
            message = asserts.ask(program.ask(message))
    return message["passed"] is True


def _reply(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise NoReply("it does not keep to the protocol")
    return message
