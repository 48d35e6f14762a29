"""Whether what a program printed or returned is what its tests expect."""

import re
from decimal import Decimal
from itertools import chain
from typing import Any

from rollwise.grading.plain_data import decode

TOLERANCE = 1e-6
"""How far a number may be from one that is not whole, or be relative to it, as judges allow."""

ROUNDED = 1e-5
"""The same for numbers with five decimals, to which LeetCode rounds; it allows as much."""

_EXACT = 2**53

# A text with further zeros in front, such as 0010, is no number.
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs have the same lines; numbers are compared by value.

    White space at the ends of lines, and empty lines at the end, do not count, as in LiveCodeBench.
    """
    first, second = (
        [line.split() for line in text.strip().split("\n")] for text in (printed, expected)
    )
    return [*map(len, first)] == [*map(len, second)] and all(
        map(_same_word, chain(*first), chain(*second))
    )


def _same_word(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    if not _NUMBER.fullmatch(printed) or not _NUMBER.fullmatch(expected):
        return False
    try:
        if Decimal(printed) == Decimal(expected):
            return True
    except ArithmeticError:  # an exponent beyond all limits
        return False
    return not printed.lstrip("+-").isdecimal() and _is_close(float(printed), Decimal(expected))


def same_value(found: Any, expected: Any) -> bool:
    """Whether a value as `value_of` returns it is the expected one, whose floats are Decimals."""
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same_value, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same_value(found[key], expected[key]) for key in found
        )
    if isinstance(expected, Decimal) and isinstance(found, int | float):
        return found == expected or _is_close(found, expected)
    if isinstance(expected, int) and isinstance(found, float):
        return found == expected or _is_close(found, Decimal(expected))
    return bool(found == expected)


def _is_close(found: float, expected: Decimal) -> bool:
    exponent = expected.as_tuple().exponent
    try:
        value, found = float(expected), float(found)
    except OverflowError:
        return False
    if exponent == 0 and abs(value) > _EXACT:
        return False  # a float that cannot tell integers apart
    tolerance = TOLERANCE if exponent == 0 else TOLERANCE * max(1.0, abs(value))
    return abs(found - value) <= (max(tolerance, ROUNDED) if exponent == -5 else tolerance)


def value_of(data: Any) -> Any:
    """Return the value that `encode` wrote, as JSON has it; a ValueError for others.

    Only texts are hashed, since numbers can be forged to collide.
    """
    if not isinstance(data, list):
        return data
    kind, content = data[0], data[-1]
    if kind in ("int", "float"):
        return decode(data)
    if kind in ("dict", "OrderedDict", "Counter", "defaultdict"):
        return {str(value_of(key)): value_of(item) for _, (key, item) in content}
    if kind in ("list", "tuple"):
        return [value_of(item) for item in content]
    if kind == "handle" and content is not None:  # of a subclass
        return value_of(content)
    raise ValueError(f"a {kind!r} is not in JSON")
