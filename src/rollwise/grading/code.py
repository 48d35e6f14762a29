"""Grading code by running it against a problem's tests, inside a sandbox."""

import functools
import re

from rollwise.grading.conversation import NoReply, check_sandbox, sandboxed
from rollwise.grading.program_usage import BUSY
from rollwise.grading.sandbox import ProgramLimits
from rollwise.grading.testcases import read_tests
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

    The program is what `code_of` finds; the answers are the tests (see `read_tests`). It runs in a
    sandbox with only the standard library, and what it prints or returns is compared outside. A
    program that takes too long, prints too much or crashes is incorrect; tests that cannot be read
    count as `failures`.

    Args:
        timeout: Seconds for all tests of one response: of processor time while the program
            computes, so that other load on the machine changes no result, and by the clock while it
            sleeps. By the clock, the limit in all is ten times as long.
        workers: Programs that run at a time; None means one for each CPU, at most 16.
        uncontained: Run programs as this user, without a sandbox: they can read and delete what
            this user can. Only for a machine that you can afford to lose.

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
    start = functools.partial(sandboxed, limits)

    def grade(response: str, answer: str) -> float:
        tests = read_tests(answer)
        try:
            return float(tests.passed_by(code_of(response), start))
        except (NoReply, KeyError, TypeError, ValueError, RecursionError):  # it sent no plain data
            return 0.0

    return grade
