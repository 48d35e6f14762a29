"""Whether two final answers are equal, as they are written; Math-Verify reads what we do not."""

import functools
import itertools
import re

from rollwise.answers.finding import boxed, final_answer, reference_answer
from rollwise.answers.nodes import LISTS, Node, Unreadable
from rollwise.answers.reading import option_of, read


@functools.lru_cache(maxsize=4096)
def equal_answers(found: str, reference: str) -> bool:
    r"""Return whether two final answers are equal in any form.

    Neither is in a `\boxed{}`, as `final_answer` and `reference_answer` return them. What is too
    long or has brackets that do not match equals only itself. There is no limit on time:
    Math-Verify reads integrals, sums and the like.
    """
    option, wanted = option_of(found), option_of(reference)
    if wanted and (option or (len(found.strip()) == 1 and found.strip().isalpha())):
        return (option or (found.strip(), ""))[0] == wanted[0]
    try:
        if _equal(found, reference):
            return True
    except (Unreadable, RecursionError):
        return found.split() == reference.split()
    if option and option[1]:
        return equal_answers(option[1], reference)
    return bool(wanted and wanted[1] and equal_answers(found, wanted[1]))


MOST_WORDS = 12
"""Words of a reference that is only a text; what is longer can hardly be repeated."""


def why_unreadable(answer: str) -> str | None:
    """Return why no response would be graded as it should against a reference; None if it would."""
    reference = reference_answer(answer)
    if not reference:
        return "it is empty"
    if final_answer(boxed(reference)) != reference:
        return "it cannot be put into a box"
    try:
        node = read(reference)
    except (Unreadable, RecursionError) as error:
        return f"it cannot be read: {error}"
    items = node.parts if node.kind in LISTS else (node,)
    are_texts = [n.kind == "words" or (n.kind == "other" and not n.value) for n in items]
    if len(reference.split()) > MOST_WORDS and any(are_texts):
        return "it is a text, not an answer"
    return None


def _equal(found: str, reference: str) -> bool:
    from rollwise.answers.comparing import are_equal  # here: it loads mpmath

    one, other = read(found), read(reference)
    readings: list[tuple[Node, ...]] = [(one, other)]
    if other.kind in LISTS:  # then 1,234 may be two values
        readings.append((read(found, grouping=False), read(reference, grouping=False)))
    if one.kind in LISTS or other.kind in LISTS:  # or one, with a decimal comma
        both = (_DECIMAL_COMMA.sub(r"\1.\2", text) for text in (found, reference))
        readings.append(tuple(map(read, both)))
    if any(itertools.starmap(are_equal, dict.fromkeys(readings))):
        return True
    is_unread = any(n.kind == "other" and n.value for n in (*one.walk(), *other.walk()))
    return is_unread and _by_math_verify(found, reference)


_DECIMAL_COMMA = re.compile(r"\A(\W*\d+),(\d\d|\d{4,}|(?<=\b0,)\d{3})(?!\d|,)")
PRECISION = 60
"""Decimal places to which Math-Verify compares: by default it takes e^-100 for e^-101."""


def _by_math_verify(found: str, reference: str) -> bool:
    from math_verify import LatexExtractionConfig, parse, verify  # it loads SymPy

    box_alone = [LatexExtractionConfig(try_extract_without_anchor=False)]
    read = [parse(boxed(text), box_alone, parsing_timeout=None) for text in (reference, found)]
    if any(all(isinstance(reading, str) for reading in readings) for readings in read):
        return False  # only a text
    precise = {"float_rounding": PRECISION, "numeric_precision": 2 * PRECISION}
    return bool(verify(*read, **precise, timeout_seconds=None))
