"""Grading mathematics by Math-Verify."""

import logging
import re

from rollwise.grading.workers import GradeFunction, WorkerGrader

# $...$, \(, \[ or \boxed; a currency's single $ and a row's end (\\[2pt]) are none of them.
_DELIMITED = re.compile(r"(?<!\\)(?:\$.+?(?<!\\)\$|\\\(|\\\[|\\boxed\b)", re.DOTALL)


def verify_math(response: str, answer: str) -> float:
    r"""Give 1.0 to a response whose final answer is mathematically equal to `answer`, else 0.0.

    The final answer is what Math-Verify finds: the last `\boxed{}`, else the last formula or
    number. There is no limit of time here; Math-Verify's own needs SIGALRM and the main thread.

    Args:
        response: All the text of it.
        answer: Bare LaTeX or plain text, or either of them within `\boxed{}`, `$...$`, `\(...\)`
            or `\[...\]`.

    Raises:
        ValueError: Nothing can be read from `answer`: the problem is at fault, not the response.
    """
    from math_verify import parse, verify  # here, so that only workers pay for it (SymPy)

    # Math-Verify would read only the 3 of a bare 3\sqrt{13}.
    delimited = answer if _DELIMITED.search(answer) else f"\\boxed{{{answer}}}"
    reference = parse(delimited, parsing_timeout=None)
    if not reference:
        raise ValueError(f"nothing can be read from the reference answer {answer!r}")
    found = parse(response, parsing_timeout=None)
    return float(verify(reference, found, timeout_seconds=None))


def _load() -> GradeFunction:
    """Import Math-Verify and use it once: SymPy and its parser load more at their first use."""
    # It warns in every process that its timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verify_math(r"$\boxed{\frac{1}{2}}$", "0.5")
    return verify_math


class MathGrader(WorkerGrader):
    """Gives 1.0 to a response whose final answer equals the reference mathematically, else 0.0.

    See `verify_math` for how answers may be written.

    Args:
        timeout: Seconds for one response; one that takes longer fails.
        workers: Processes; None takes one for each CPU, at most 16.
    """

    def __init__(self, timeout: float = 2.0, workers: int | None = None) -> None:
        super().__init__(_load, timeout, workers)
