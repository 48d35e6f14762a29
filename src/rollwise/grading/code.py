"""Grading code by running it against a problem's tests, inside a sandbox."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollwise.grading.contained import decode, encode
from rollwise.grading.limits import GradeFunction, Limits
from rollwise.grading.sandbox import Contained, Lost, find_containment, uncontained
from rollwise.grading.testcases import (
    AssertTests,
    CallTests,
    ProgramTests,
    read_tests,
    same_output,
    same_value,
)
from rollwise.grading.workers import WorkerGrader
from rollwise.sampling.checks import at_least

MEMORY = 512 * 1024**2
"""Bytes of each process of a program."""

PROCESSES = 8
"""Processes and threads that a program may have at a time."""

PATIENCE = 30.0
"""Seconds that a worker may take beyond a program's own, to start, read and compare."""

_FENCED = re.compile(r"^[ \t]*+```[^\n`]*+\n(.*?)(?:^[ \t]*+```|\Z)", re.DOTALL | re.MULTILINE)


def code_of(response: str) -> str:
    """Return a response's last fenced block, closed or not; all of it where there is none."""
    blocks = _FENCED.findall(response)
    return blocks[-1] if blocks else response


class CodeGrader(WorkerGrader):
    """Gives 1.0 to a response whose Python passes all tests of its problem, else 0.0.

    The program is that of `code_of`. The answers are the tests: see `read_tests`. It runs as
    nobody, in a folder and an environment that are empty, with the standard library alone, and what
    it prints or returns is compared outside: see `sandbox`. A program that takes too long, prints
    too much or crashes is incorrect; tests that cannot be read count as `failures`.

    Args:
        timeout: Seconds for all tests of one response.
        workers: Programs that run at a time; None takes one for each CPU, at most 16.
        memory: Bytes of each process of a program.
        processes: Processes and threads that a program may have at a time.
        uncontained: Run programs as this user with nothing around them: they can read and delete
            what this user can. For a machine that may be lost.

    Raises:
        ConfigError: Nothing can contain programs here, and `uncontained` is not set.
        ValueError: A value out of range.
    """

    def __init__(
        self,
        timeout: float = 10.0,
        workers: int | None = None,
        memory: int = MEMORY,
        processes: int = PROCESSES,
        *,
        uncontained: bool = False,
    ) -> None:
        limits = Limits(wall=timeout)  # checks it
        at_least("memory", memory, 64 * 1024**2)
        at_least("processes", processes, 1)
        run = _Run(timeout, memory, processes, contained=not uncontained)
        run.command()
        super().__init__(run, Limits(wall=limits.wall + PATIENCE), workers)

    def _part(self, response: str, answer: str) -> str:
        return code_of(response)


@dataclass(frozen=True)
class _Run:
    """Grades programs, in a worker."""

    timeout: float
    memory: int
    processes: int
    contained: bool

    def command(self) -> Callable[[str], list[str]]:
        return find_containment() if self.contained else uncontained

    def __call__(self) -> GradeFunction:
        command = self.command()

        def grade(code: str, answer: str) -> float:
            tests = read_tests(answer)
            limits = self._limits()

            def start(mode: str, code: str, **more: Any) -> Contained:
                first = {"mode": mode, "code": code, "limits": limits, **more}
                return Contained(command, first, self.timeout)

            try:
                return float(_passes(tests, code, start))
            except (Lost, TypeError, ValueError, RecursionError):  # no answer, or no plain data
                return 0.0

        return grade

    def _limits(self) -> dict[str, int]:
        limits = {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CPU": math.ceil(self.timeout) + 1,
            "RLIMIT_FSIZE": 64 * 1024**2,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_CORE": 0,
        }
        # Without a user of its own, a program would be held to account for all of the user's.
        return limits | ({"RLIMIT_NPROC": self.processes} if self.contained else {})


Start = Callable[..., Contained]


def _passes(tests: ProgramTests | CallTests | AssertTests, code: str, start: Start) -> bool:
    if isinstance(tests, ProgramTests):
        return _prints(tests, code, start)
    if isinstance(tests, CallTests):
        return _returns(tests, code, start)
    return _withstands(tests, code, start)


def _prints(tests: ProgramTests, code: str, start: Start) -> bool:
    with start("program", code) as program:
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            printed = program.ask({"stdin": given})
            if not isinstance(printed, str) or not same_output(printed, expected):
                return False
    return True


def _returns(tests: CallTests, code: str, start: Start) -> bool:
    with start("functions", code) as program:
        if "value" not in _reply(program.receive()):
            return False
        for arguments, expected in zip(tests.arguments, tests.expected, strict=True):
            call = {"call": tests.name, "args": [*map(encode, arguments)], "kwargs": encode({})}
            reply = _reply(program.ask(call))
            if "value" not in reply or not same_value(decode(reply["value"]), expected):
                return False
    return True


def _reply(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise Lost("it does not keep to the protocol")
    return message


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
