"""Grading code by running it against a problem's tests, inside a sandbox."""

import ast
import functools
import re
import sys
import textwrap

from rollwise.grading.conversation import START_TIMEOUT, NoReply, check_sandbox, sandboxed
from rollwise.grading.pool import WorkerGrader
from rollwise.grading.sandbox import ProgramLimits
from rollwise.grading.testcases import read_tests, statements_of
from rollwise.grading.worker import GradeFunction, Limits

_FENCED = re.compile(
    r"^[ \t]*+(?:(?:[-*+>]|\d++[.)])[ \t]*+)?"
    r"(?P<fence>`{3,}+|~{3,}+)([^\n`]*+)\n"
    r"(.*?)(?:^[ \t]*+(?P=fence)[`~]*+[ \t]*+$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = re.compile(r"[\s{.]*(?:python|py)[\d.]*\b", re.IGNORECASE)


def code_of(response: str) -> str:
    """Return the program in a response: its last fenced block of Python, closed or not.

    Without a block that is tagged as Python, it is the last one without a tag that has a statement
    (so that it is no sample of output), and without any block the whole response. What comes before
    the end of a model's thinking does not count; all of a response that never ends it is thinking.
    """
    answer = response.rpartition("</think>")[2]
    if "<think>" in answer:
        return ""
    blocks = [(tag.strip(), textwrap.dedent(code)) for _, tag, code in _FENCED.findall(answer)]
    if not blocks:
        return answer
    tagged = [code for tag, code in blocks if _PYTHON.match(tag)]
    untagged = [code for tag, code in blocks if not tag]
    programs = tagged or [code for code in untagged if _has_statement(code)] or untagged or [""]
    return programs[-1]


def _has_statement(code: str) -> bool:
    return any(
        not isinstance(s, ast.Expr) or isinstance(s.value, ast.Call) for s in statements_of(code)
    )


class CodeGrader(WorkerGrader):
    """Gives 1.0 to a response whose Python passes all tests of its problem, else 0.0.

    The program is what `code_of` finds; the answers are the tests (see `read_tests`). It runs in a
    sandbox with only the standard library, and what it prints or returns is compared outside. A
    program that takes too long, prints too much or crashes is incorrect; tests that cannot be read
    count as `failures`.

    Args:
        timeout: Seconds for all tests of one response; see `ProgramUsage`.
        workers: Programs that run at a time; see `WorkerGrader`.
        uncontained: Run programs as this user, without a sandbox: they can read and delete what
            this user can. Only for a machine that you can afford to lose.

    Raises:
        ConfigError: No sandbox works here, and `uncontained` is not set.
        ValueError: A value out of range.
    """

    def __init__(
        self, timeout: float = 10.0, workers: int | None = None, *, uncontained: bool = False
    ) -> None:
        Limits(timeout)  # checks it
        # A program's own limit holds before that: a worker starts two sandboxes, and compares.
        limits = Limits(2 * (START_TIMEOUT + timeout) + timeout)
        if not uncontained:
            check_sandbox()
        load = functools.partial(_load, ProgramLimits(timeout, uncontained=uncontained))
        super().__init__(load, limits, workers)


def _load(limits: ProgramLimits) -> GradeFunction:
    start = functools.partial(sandboxed, limits)
    sys.set_int_max_str_digits(0)  # tests may have integers of any length

    def grade(response: str, answer: str) -> float:
        tests = read_tests(answer)
        try:
            return float(tests.passed_by(code_of(response), start))
        except (NoReply, LookupError, TypeError, ValueError, RecursionError):  # no plain data
            return 0.0

    return grade
