"""Grading mathematics by Math-Verify."""

import functools
import gc
import logging
import os
import re
import signal
import warnings
from typing import Any, Literal

from rollwise.grading.final_answers import (
    box_of,
    boxed,
    minerva_answer,
    minerva_normalised,
    plainly_different,
    plainly_equal,
)
from rollwise.grading.limits import GradeFunction, Limits
from rollwise.grading.worker_grader import NeedsWholeResponse, WorkerGrader
from rollwise.sampling.checks import one_of

Convention = Literal["math_verify", "minerva"]

CONVENTIONS: tuple[Convention, ...] = ("math_verify", "minerva")

MEMORY = 1024**3
"""Bytes that grading one response may take."""

REMEMBERED = 65536
"""Results that a grader keeps, of about 200 bytes each."""

# $...$, \(, \[ or \boxed, but not a currency's single $, nor the end of a row (\\[2pt]).
_DELIMITED = re.compile(r"(?<!\\)(?:\$.+?(?<!\\)\$|\\\(|\\\[|\\boxed\b)", re.DOTALL)


def verify_math(response: str, answer: str) -> float:
    r"""Give 1.0 to a response whose final answer is mathematically equal to `answer`, else 0.0.

    Math-Verify finds the final answer: the last `\boxed{}`, else the last formula or number. There
    is no time limit here; Math-Verify's own needs SIGALRM and the main thread.

    Args:
        response: The whole text.
        answer: LaTeX or plain text, bare or within `\boxed{}`, `$...$`, `\(...\)` or `\[...\]`.

    Raises:
        ValueError: Nothing can be read from `answer`; the problem is at fault, not the response.
    """
    from math_verify import parse, verify  # here, so that only workers pay for it (SymPy)

    found = parse(response, parsing_timeout=None)
    return float(verify(_reference(answer), found, timeout_seconds=None))


@functools.lru_cache(maxsize=1024)
def _reference(answer: str) -> list[Any]:
    """Parse a reference answer, which the responses to a prompt share."""
    from math_verify import parse

    # Math-Verify would read only the 3 of a bare 3\sqrt{13}.
    delimited = answer if _DELIMITED.search(answer) else boxed(answer)
    reference: list[Any] = parse(delimited, parsing_timeout=None)
    if not reference:
        raise ValueError(f"nothing can be read from the reference answer {answer!r}")
    return reference


def _verify_part(text: str, answer: str) -> float:
    r"""Do the same as `verify_math`, for a whole response or the `\boxed{}` that `box_of` found.

    Raises:
        NeedsWholeResponse: Math-Verify cannot read the box as mathematics; in the whole response
            it would look for another answer.
    """
    from math_verify import verify

    content = box_of(text)
    if content is None or text != boxed(content):
        return verify_math(text, answer)
    found = _box(text)
    if verify(_reference(answer), found, timeout_seconds=None):
        return 1.0
    if all(isinstance(reading, str) for reading in found):
        raise NeedsWholeResponse
    return 0.0


@functools.lru_cache(maxsize=1024)
def _box(text: str) -> list[Any]:
    """Parse a box alone; some answers (1/2, 90°) come up for many references."""
    from math_verify import LatexExtractionConfig, parse

    box_alone = [LatexExtractionConfig(try_extract_without_anchor=False)]
    found: list[Any] = parse(text, box_alone, parsing_timeout=None)
    return found


def verify_minerva(found: str, answer: str) -> float:
    """Give 1.0 to a final answer that equals the reference after Minerva's normalisation.

    Equal means the same text, or equal according to Math-Verify.

    Raises:
        ValueError: Nothing is left of `answer` once it is normalised.
    """
    found, answer = minerva_normalised(found), minerva_normalised(answer)
    if found and found == answer:
        return 1.0
    return verify_math(boxed(found), boxed(answer))


def _refuse_huge_numbers(timeout: float) -> None:
    """Make SymPy end this process, as its time limit would, before it computes a huge number.

    Huge is a power or a factorial of more than 5e8 bits for each second of the limit, for which
    Python's own arithmetic takes far longer.
    """
    from sympy import Integer, factorial

    most = int(5e8 * timeout)
    power, of_factorial = Integer._eval_power, factorial.eval

    def eval_power(base: Any, exponent: Any) -> Any:
        if exponent.is_Integer and exponent.p * (abs(base.p).bit_length() - 1) > most:
            os.kill(os.getpid(), signal.SIGPROF)
        return power(base, exponent)

    def eval_factorial(cls: Any, n: Any) -> Any:
        if n.is_Integer and n.p > most:  # n! has more than n bits
            os.kill(os.getpid(), signal.SIGPROF)
        return of_factorial(n)

    Integer._eval_power, factorial.eval = eval_power, classmethod(eval_factorial)


def _load(convention: Convention, timeout: float) -> GradeFunction:
    """Import Math-Verify and use it once: SymPy and its parser load more at their first use."""
    # Math-Verify warns in every process that its timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verify_math(r"$\boxed{\frac{1}{2}}$", "0.5")
    warnings.simplefilter("ignore")  # SymPy's, about hostile answers
    _refuse_huge_numbers(timeout)
    gc.set_threshold(100_000)  # SymPy makes many objects and few cycles; saves a tenth
    return _verify_part if convention == "math_verify" else verify_minerva


class MathGrader(WorkerGrader):
    r"""Gives 1.0 to a response whose final answer equals the reference mathematically, else 0.0.

    `verify_math` says how answers may be written. If a response's only answer is a `\boxed{}`, that
    box alone is graded, once for each reference, since results are remembered. The results are
    those that Math-Verify gives for the whole response.

    Args:
        timeout: Seconds of processor time for one response, so that other load on the machine
            changes no result; by the clock, ten times as many. A response that takes longer fails.
        workers: Processes; None means one for each CPU, at most 16.
        convention: `math_verify`, or `minerva`: the final answer is between "Final Answer: The
            final answer is" and "I hope it is correct.", and is compared by `verify_minerva`.
        memory: Bytes that grading one response may take (on Linux).

    Raises:
        ValueError: A value out of range.
    """

    def __init__(
        self,
        timeout: float = 2.0,
        workers: int | None = None,
        convention: Convention = "math_verify",
        memory: int = MEMORY,
    ) -> None:
        one_of("convention", convention, CONVENTIONS)
        self.convention = convention
        limits = Limits(wall=10 * timeout, cpu=timeout, memory=memory)
        load = functools.partial(_load, convention, timeout)
        super().__init__(load, limits, workers, REMEMBERED, shared=True)

    def _part(self, response: str, answer: str) -> str | float:
        if self.convention == "minerva":
            found = minerva_answer(response)
            return 0.0 if found is None else found
        content = box_of(response)
        if content is None:
            return response
        if plainly_equal(content, answer):
            return 1.0
        return 0.0 if plainly_different(content, answer) else boxed(content)
