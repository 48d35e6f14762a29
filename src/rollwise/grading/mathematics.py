"""Grading mathematics: by Math-Verify, and in more of the ways in which people write answers."""

import contextlib
import functools
import gc
import logging
import re
import warnings
from typing import Any

from rollwise.grading.answer_forms import are_equal, split_list
from rollwise.grading.answer_text import Unreadable, simplified
from rollwise.grading.final_answers import (
    LONGEST_BOX,
    bare_reference,
    boxed,
    final_boxes,
    tagged_answer,
)
from rollwise.grading.worker import GradeFunction, Limits
from rollwise.grading.worker_grader import WorkerGrader

MEMORY = 1024**3
"""Bytes that grading one response may take."""

# $...$, \(, \[ or \boxed, but not a currency's single $, nor the end of a row (\\[2pt]).
_DELIMITED = re.compile(r"(?<!\\)(?:\$.+?(?<!\\)\$|\\\(|\\\[|\\boxed\b)", re.DOTALL)


def verify_math(response: str, answer: str) -> float:
    r"""Give 1.0 to a response whose final answer, as Math-Verify finds it, equals the reference.

    The reference may be bare or within `\boxed{}`, `$...$`, `\(...\)` or `\[...\]`; a ValueError
    says that nothing can be read from it. There is no time limit here; Math-Verify's own needs
    SIGALRM and the main thread.
    """
    from math_verify import parse, verify  # here, so that only workers pay for it (SymPy)

    found = parse(response, parsing_timeout=None)
    return float(verify(_reference(answer), found, timeout_seconds=None))


@functools.lru_cache(maxsize=1024)
def _reference(answer: str) -> list[Any]:
    from math_verify import parse

    # Math-Verify would read only the 3 of a bare 3\sqrt{13}.
    delimited = answer if _DELIMITED.search(answer) else boxed(answer)
    reference: list[Any] = parse(delimited, parsing_timeout=None)
    if not reference:
        raise ValueError(f"nothing can be read from the reference answer {answer!r}")
    return reference


@functools.lru_cache(maxsize=1024)
def _read_box(content: str) -> list[Any]:
    """Return what Math-Verify reads in a box alone; [] if that is only a text."""
    from math_verify import LatexExtractionConfig, parse

    box_alone = [LatexExtractionConfig(try_extract_without_anchor=False)]
    found: list[Any] = parse(boxed(content), box_alone, parsing_timeout=None)
    return [] if all(isinstance(reading, str) for reading in found) else found


@functools.lru_cache(maxsize=4096)
def verify_answer(found: str, answer: str) -> float:
    r"""Give 1.0 to a final answer (without `\boxed{}`) that equals the reference in any form.

    Numbers, words, units and the parts of lists, intervals and matrices are compared by
    `are_equal`, and all else by Math-Verify, both as written and without formatting. The reference
    may also be a list of one or a whole solution. Raises as `verify_math`.
    """
    reference, wanted = _wanted(answer)
    if len(found) <= LONGEST_BOX and wanted is not None:
        with contextlib.suppress(Unreadable):
            verdict = are_equal(simplified(found), wanted, _equal_by_math_verify)
            if not verdict and len(split_list(wanted)) > 1:  # 1,234 may be two values
                found_values = simplified(found, commas_group=False)
                verdict = are_equal(found_values, wanted, _equal_by_math_verify)
            if verdict is not None:
                return float(verdict)
    return _as_written(found, reference)


@functools.lru_cache(maxsize=4096)
def _wanted(answer: str) -> tuple[str, str | None]:
    """Return a bare reference, as written and without formatting; None if that cannot be read."""
    reference = bare_reference(answer)
    with contextlib.suppress(Unreadable):
        return reference, simplified(reference) if len(reference) <= LONGEST_BOX else None
    return reference, None


def _equal_by_math_verify(found: str, reference: str) -> bool:
    """Compare two answers whose formatting has been removed."""
    from math_verify import verify

    readings, references = _read_box(found), _read_box(reference)
    return bool(readings and references and verify(references, readings, timeout_seconds=None))


def _as_written(found: str, reference: str) -> float:
    # Math-Verify takes a number from inside what it cannot read. A number inside the reference does
    # not count: an answer that is only this number is not the reference.
    from math_verify import parse, verify

    readings = _read_box(found) or parse(boxed(found), parsing_timeout=None)
    references = _reference(reference)
    if not _read_box(reference):
        references = [reading for reading in references if isinstance(reading, str)]
    return float(verify(references, readings, timeout_seconds=None))


def _values_wanted(answer: str) -> int:
    return max(1, len(split_list(_wanted(answer)[1] or "")))


def last_answer(response: str, answer: str) -> str | None:
    r"""Return the content of the last box; None if there is none, or a very long one.

    If the reference has several values and the last boxes have one each, that many of them are
    joined: "$\boxed{2}$ or $\boxed{-3}$". Without a box, it is what `<answer>` tags hold.
    """
    wanted = _values_wanted(answer)
    boxes = final_boxes(response, wanted)
    if boxes is None:
        return tagged_answer(response)
    has_several = any(_values_wanted(box) > 1 for box in boxes)
    return ", ".join(boxes) if 1 < wanted == len(boxes) and not has_several else boxes[-1]


def _grade(response: str, answer: str) -> float:
    content = last_answer(response, answer)
    if content is None:
        return verify_math(response, bare_reference(answer))
    return verify_answer(content, answer)


def _load() -> GradeFunction:
    # Math-Verify warns in every process that its timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verify_math(r"$\boxed{\frac{1}{2}}$", "0.5")  # loads more of SymPy and its parser
    warnings.simplefilter("ignore")  # SymPy's, about hostile answers
    gc.set_threshold(100_000)  # SymPy makes many objects and few cycles; saves a tenth
    return _grade


class MathGrader(WorkerGrader):
    r"""Gives 1.0 to a response whose final answer equals the reference mathematically, else 0.0.

    The final answer is the last `\boxed{}` (or `\fbox{}`), compared by `verify_answer`; without any
    box, what `<answer>` tags hold, or else what Math-Verify finds.

    Args:
        timeout: Seconds of processor time for one response, so that other load on the machine
            changes no result; by the clock, ten times as many. A response that takes longer fails.
        workers: Processes; None means one for each CPU, at most 16.

    Raises:
        ValueError: A value out of range.
    """

    def __init__(self, timeout: float = 2.0, workers: int | None = None) -> None:
        limits = Limits(wall=10 * timeout, cpu=timeout, memory=MEMORY)
        super().__init__(_load, limits, workers, shared=True)
