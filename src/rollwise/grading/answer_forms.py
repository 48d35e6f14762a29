r"""Whether two final answers are equal, whatever form people give them.

Each is simplified (`answer_text`), and compared by what it certainly says: a number, words, a
unit, the parts of a list, a set, an interval or a matrix, the right side of `x = 5`. All other
mathematics is left to Math-Verify.
"""

import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rollwise.grading.answer_text import bracketed, latex, split, stripped, tight
from rollwise.grading.answer_values import (
    CHANGING,
    choice_of,
    number_of,
    same_number,
    split_base,
    split_percent,
    split_unit,
    words_of,
)

Compare = Callable[[str, str], bool]
"""Whether two answers, in LaTeX without any of our forms, are mathematically equal."""

_BEFORE = re.compile(
    r"(?:[=:≈ ]|\\(?:simeq|sim|cong|doteq|therefore|implies|Rightarrow)(?![A-Za-z])|"
    r"“(?:about|approximately|approx)”\.?)+",
    re.IGNORECASE,
)
_AFTER = re.compile(r"(?:[.,;: ]|\\(?:checkmark|blacksquare|square|qed)(?![A-Za-z]))+\Z")
_LETTER = re.compile(r"[^\W\d_]")


def are_equal(found: str, reference: str, compare: Compare) -> bool | None:
    """Say whether an answer is the reference; None if it cannot be told from the forms."""
    found, reference = _without_marks(found), _without_marks(reference)
    if not found or not reference:
        return None
    if tight(found) == tight(reference):
        return True
    words, wanted = words_of(found), words_of(reference)
    if wanted is not None:
        option = choice_of(found) if len(wanted) == 1 else None
        if option or words is not None:
            return wanted in (option, words)
    if (verdict := _by_equations(found, reference, compare)) is not None:
        return verdict
    if (verdict := _by_parts(found, reference, compare)) is not None:
        return verdict
    return _by_values(found, reference, compare)


def _without_marks(answer: str) -> str:
    """Take away what stands before and after an answer: "=", "about", a full stop."""
    before = _BEFORE.match(answer)
    return stripped(_AFTER.sub("", answer[before.end() :] if before else answer))


def split_list(answer: str) -> list[str]:
    """Split an answer such as `2, -3` into its values; one ± makes two of a value."""
    values = split(answer, ",", ";", "“and”", "“or”")
    signs = ["+-" if each.count("±") == 1 and "⦃" not in each else "±" for each in values]
    return [
        value.replace("±", one) for value, both in zip(values, signs, strict=True) for one in both
    ]


# ---- Equations


def _by_equations(found: str, reference: str, compare: Compare) -> bool | None:
    """Compare the right sides of `x = 5`; None if neither answer is an equation."""
    if any(len(split_list(answer)) > 1 for answer in (found, reference)):
        return None
    sides, wanted = split(found, "="), split(reference, "=")
    if not (sides and wanted) or len(sides) == len(wanted) == 1:
        return None
    if len(wanted) == 1:
        return _is_solved(sides[0]) and bool(are_equal(sides[-1], reference, compare))
    if len(sides) == 1:
        if _is_solved(wanted[0]):
            return bool(are_equal(found, wanted[-1], compare))
        return False if number_of(found) is not None else None
    if tight(sides[0]) == tight(wanted[0]):
        return bool(are_equal(sides[-1], wanted[-1], compare))
    names = _LETTER.fullmatch(sides[0]) and _LETTER.fullmatch(wanted[0])
    return False if names and number_of(wanted[-1]) is not None else None  # y = 5 for x = 5


_NO_FACTOR = re.compile(r"[(\[][^()\[\]]*[)\]]|_\{[^{}]*\}|\^\{-1\}|\\angle ?\d+")


def _is_solved(side: str) -> bool:
    """Whether a left side names what is asked for, as in `f(2) = 5`, unlike `2x = 10`.

    Numbers that are arguments, indices, inverses or names do not count: f(2), x_2, f^{-1}.
    """
    has_names = _LETTER.search(re.sub(r"\\[A-Za-z]+|“[^”]*”", "", side))
    return not (has_names and re.search(r"\d", _NO_FACTOR.sub("", tight(side))))


# ---- Answers with several parts


class Parts(NamedTuple):
    """The parts of an answer that has several, in the rows of a matrix; all else has one row.

    Its kind is `list`, `union`, or the two brackets around it; `name` is the x of `x > 2`.
    """

    kind: str
    rows: list[list[str]]
    name: str = ""


def _parts_of(answer: str) -> Parts | None:
    """Read a list, a set, an interval, a tuple, a union or a matrix; None of anything else."""
    if found := re.match(r"([^\W\d_]) ?∈ ?", answer):
        parts = _parts_of(stripped(answer[found.end() :]))
        return parts and parts._replace(name=found[1])
    unions = split(answer, "∪", "“or”")
    if len(unions) > 1 and all(_interval(each) or _parts_of(each) for each in unions):
        return Parts("union", [unions])
    listed = split_list(answer)
    if len(listed) > 1:
        return Parts("list", [listed])
    kind, inner = bracketed(answer) or ("", "")
    if kind in _MATRICES:
        return Parts(kind, [split(row, "&") for row in split(inner, "⏎")])
    return Parts(kind, [split_list(inner)]) if inner else _interval(answer)


_MATRICES = ("⟦⟧", "⟪⟫")
_MIRRORED = {"<": ">", "≤": "≥", ">": "<", "≥": "≤"}


def _interval(answer: str) -> Parts | None:
    r"""Read an inequality such as `x > 2` or `1 < x \le 3` as an interval."""
    signs, sides = [sign for sign in answer if sign in _MIRRORED], split(answer, *_MIRRORED)
    if not signs or len(sides) != len(signs) + 1:
        return None
    if signs[0] in ">≥":
        signs, sides = [_MIRRORED[sign] for sign in reversed(signs)], sides[::-1]
    if not set(signs) <= {"<", "≤"}:
        return None
    names = [bool(_LETTER.fullmatch(side)) for side in sides]
    if names == [True, False]:
        sides, signs = ["-∞", *sides], ["<", *signs]
    elif names == [False, True]:
        sides, signs = [*sides, "∞"], [*signs, "<"]
    elif names != [False, True, False]:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Parts(brackets, [[sides[0], sides[2]]], sides[1])


def _by_parts(found: str, reference: str, compare: Compare) -> bool | None:
    """Compare answers of several parts one by one; None if it cannot be told."""
    parts, wanted = _parts_of(found), _parts_of(reference)
    if any("±" in value for value in split_list(found) + split_list(reference)):
        return None
    if parts is None or wanted is None:
        if wanted is not None and wanted.kind == "()" and _is_changed(found):
            return False
        if parts:
            return False if parts.kind == "list" else None
        is_number = number_of(split_unit(found)[0]) is not None
        return False if wanted and wanted.kind == "list" and is_number else None
    if parts.name and wanted.name and parts.name != wanted.name:  # y > 2 for x > 2
        return False
    is_ordered = _ORDER_COUNTS.get((parts.kind, wanted.kind))
    if parts.kind == wanted.kind:
        is_ordered = parts.kind not in ("list", "union", "⦃⦄")
    if is_ordered is None:
        kinds = {parts.kind, wanted.kind}
        is_other = kinds <= {"()", "[]", "(]", "[)"} and len(wanted.rows[0]) == 2
        return False if is_other or (wanted.kind[0] in "([" and parts.kind == "⦃⦄") else None
    if [len(row) for row in parts.rows] != [len(row) for row in wanted.rows]:
        return False
    ones, others = (list(itertools.chain(*each.rows)) for each in (parts, wanted))
    if is_ordered:
        pairs = zip(ones, others, strict=True)
        return all(are_equal(one, other, compare) for one, other in pairs)
    for one in ones:
        same = next((other for other in others if are_equal(one, other, compare)), None)
        if same is None:
            return False
        others.remove(same)
    return True


def _is_changed(answer: str) -> bool:
    """Whether a bracket has more around it than a name, as in -(1, 2), unlike P(1, 2)."""
    name, start, inner = answer.partition("(")
    is_named = not name or name.isalpha()
    return bool(start) and not (is_named and bracketed(start + inner))


_ORDER_COUNTS = {
    **{("list", "⦃⦄"): False, ("⦃⦄", "list"): False, ("()", "list"): False},
    **{("list", "()"): True, ("()", "⟨⟩"): True, ("⟨⟩", "()"): True},
}
"""Whether parts of different kinds are compared in their order; others are not comparable."""


# ---- Answers with one value


def _by_values(found: str, reference: str, compare: Compare) -> bool | None:
    """Compare numbers exactly, unless their units or bases differ, and all else as mathematics."""
    (value, unit), (wanted, wanted_unit) = split_unit(found), split_unit(reference)
    if unit and wanted_unit and unit != wanted_unit:
        return False
    (value, base), (wanted, wanted_base) = split_base(value), split_base(wanted)
    if base and wanted_base and base != wanted_base:
        return False
    (value, is_share), (wanted, wanted_share) = split_percent(value), split_percent(wanted)
    if (unit and wanted_share) or (wanted_unit and is_share):  # 5° for 5%
        return False
    number, target = number_of(value), number_of(wanted)
    if number is not None and target is not None:
        other = target * Fraction(100) ** (is_share - wanted_share)  # 12.5 and 0.125 are 12.5%
        return same_number(number, target) or same_number(number, other)
    if not value or not wanted or any(map(_AMBIGUOUS.search, (value, wanted))):
        return False
    percents = ("%" * is_share, "%" * wanted_share)
    is_same = compare(_in_radians(value + percents[0]), _in_radians(wanted + percents[1]))
    return is_same or (False if "“" in found else None)  # as written, another value may be read


_AMBIGUOUS = re.compile(
    rf"\d \d|\d“|\d “\w”|“{CHANGING}|"
    r"[^\s“”] ?“(?!(?:for|if|when|where)\b)[^”]*”(?![\^}])[^“”]*[\w\\⟦]|"
    r"\A[^|(\[⦃]*\|[^|]*\Z|"
    r"\\(?:mid|(?:[Ll](?:ong|eft))?[Rr]ightarrow)(?![A-Za-z]|[^(){}⦃⦄]*[)}⦄])|"
    r"\A(?:[<>≤≥]|\\(?:n(?:e|eq|ot|eg|less|leq|gtr|geq)|ll|gg|propto|dim)(?![A-Za-z]))"
)
"""What Math-Verify would read a value from, though it is not one: 3 4, 2“k”, 8 | 7, ≤ 5."""


def _in_radians(answer: str) -> str:
    r"""Write an answer as LaTeX, with the degrees of an angle in radians: `\sin 30^\circ`."""
    return latex(re.sub(r"([\d.]+)°", r"\\frac{\1π}{180}", answer))
