r"""Whether two final answers are equal, whatever form people give them.

Each is read as tokens (`answer_tokens`), and compared by what it certainly says: a number, words, a
unit, the parts of a list, a set, an interval or a matrix, the right side of `x = 5`. All other
mathematics is Math-Verify's.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rollwise.grading.answer_tokens import SPACE, Token, Tokens, flat, render, trimmed
from rollwise.grading.answer_values import (
    choice_of,
    is_percentage,
    number_of,
    same_number,
    split_base,
    split_unit,
    words_of,
)

Compare = Callable[[str, str], bool]
"""Whether two answers, in LaTeX without any of our forms, are mathematically equal."""

MOST_UNORDERED = 12
"""Parts of a list whose order does not count; longer ones are Math-Verify's."""


def are_equal(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Say whether an answer is the reference; None if it cannot be told from the forms."""
    found, reference = _without_marks(found), _without_marks(reference)
    if not found or not reference:
        return None
    if render(found) == render(reference):
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


_BEFORE = frozenset(
    (
        *("=", ":", r"\approx", r"\simeq", r"\sim", r"\cong", r"\doteq", r"\therefore"),
        *(r"\implies", r"\Rightarrow", "about", "approximately", "approx", " "),
    )
)
_AFTER = frozenset((".", ",", ";", ":", r"\checkmark", r"\blacksquare", r"\square", r"\qed", " "))


def _without_marks(tokens: Tokens) -> Tokens:
    """Take away what stands before and after an answer: "=", "about", a full stop."""
    first, last = 0, len(tokens)
    while first < last and tokens[first].text.casefold() in _BEFORE:
        first += 1
    while first < last and tokens[last - 1].text in _AFTER:
        last -= 1
    if first and first < last and tokens[first].text == ".":  # approx.
        first += 1
    return trimmed(tokens[first:last])


def _split(tokens: Sequence[Token], *separators: str) -> list[Tokens]:
    """Split an answer at separators outside of all brackets; empty parts are left out."""
    ends = [i for i, token in enumerate(tokens) if token.text in separators]
    pairs = itertools.pairwise([-1, *ends, len(tokens)])
    return [part for start, end in pairs if (part := trimmed(tokens[start + 1 : end]))]


def split_list(tokens: Sequence[Token]) -> list[Tokens]:
    """Split an answer such as `2, -3` into its values."""
    return _split(tokens, ",", ";", "and", "or")


# ---- Equations


def _by_equations(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Compare the right sides of `x = 5`; None if neither answer is an equation."""
    if any(len(split_list(answer)) > 1 for answer in (found, reference)):
        return None
    sides, wanted = _split(found, "="), _split(reference, "=")
    if not (sides and wanted) or len(sides) == len(wanted) == 1:
        return None
    if len(wanted) == 1:
        return _is_solved(sides[0]) and are_equal(sides[-1], reference, compare)
    if len(sides) == 1:
        if _is_solved(wanted[0]):
            return are_equal(found, wanted[-1], compare)
        return False if number_of(found) is not None else None
    if render(sides[0]) == render(wanted[0]):
        return are_equal(sides[-1], wanted[-1], compare)
    if all(len(side) == 1 for side in (sides[0], wanted[0])) and number_of(wanted[-1]) is not None:
        return False  # y = 5 for x = 5
    return None


def _is_solved(side: Tokens) -> bool:
    """Whether a left side names what is asked for, as in `f(2) = 5`, unlike `2x = 10`."""
    has_names = any(token.kind == "letter" for token in flat(side))
    return not (has_names and _has_number(side))


def _has_number(side: Tokens) -> bool:
    r"""Whether there is a number that is no argument, index, inverse or name: f(2), x_2, f^{-1}."""
    for before, token in zip((SPACE, *side), side, strict=False):
        is_inverse = before.text == "^" and render(token.inner) == "-1"
        if before.text in ("_", r"\angle") or is_inverse:
            continue
        if token.kind == "number" or (token.kind == "braces" and _has_number(token.inner)):
            return True
    return False


# ---- Answers with several parts


class Parts(NamedTuple):
    """The parts of an answer that has several, in the rows of a matrix; all else has one row.

    Its kind is `list`, `union`, `matrix`, `vmatrix`, or the two brackets around it.
    """

    kind: str
    rows: list[list[Tokens]]


_MATRIX = re.compile("(p|b|B|v|V|small)?matrix|array")


def _parts_of(tokens: Tokens) -> Parts | None:
    """Read a list, a set, an interval, a tuple, a union or a matrix; None of anything else."""
    if re.match(r"[^\W\d_]\\in\b", render(tokens[:3])):
        return _parts_of(trimmed(tokens[2 + (tokens[1] == SPACE) :]))
    unions = _split(tokens, r"\cup", "or")
    if len(unions) > 1 and all(_interval(each) or _parts_of(each) for each in unions):
        return Parts("union", [unions])
    listed = split_list(tokens)
    if len(listed) > 1:
        return Parts("list", [listed])
    whole = tokens[0] if len(tokens) == 1 else SPACE
    if whole.kind == "matrix" and _MATRIX.fullmatch(whole.text):
        kind = "vmatrix" if whole.text in ("vmatrix", "Vmatrix") else "matrix"
        return Parts(kind, [_split(row, "&") for row in _split(whole.inner, r"\\")])
    if whole.kind == "brackets" and whole.inner:
        return Parts(whole.text, [split_list(whole.inner)])
    return _interval(tokens)


_MIRRORED = {"<": ">", r"\le": r"\ge", ">": "<", r"\ge": r"\le"}


def _interval(tokens: Tokens) -> Parts | None:
    r"""Read an inequality such as `x > 2` or `1 < x \le 3` as an interval."""
    signs = [token.text for token in tokens if token.text in _MIRRORED]
    sides = _split(tokens, *_MIRRORED)
    if not signs or len(sides) != len(signs) + 1:
        return None
    if signs[0] in (">", r"\ge"):
        signs, sides = [_MIRRORED[sign] for sign in reversed(signs)], sides[::-1]
    if not set(signs) <= {"<", r"\le"}:
        return None
    names = [len(side) == 1 and side[0].kind == "letter" for side in sides]
    infinity = Token("command", r"\infty")
    if names == [True, False]:
        sides, signs = [(Token("mark", "-"), infinity), *sides], ["<", *signs]
    elif names == [False, True]:
        sides, signs = [*sides, (infinity,)], [*signs, "<"]
    elif names != [False, True, False]:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Parts(brackets, [[sides[0], sides[2]]])


def _by_parts(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Compare answers of several parts one by one; None if it cannot be told."""
    parts, wanted = _parts_of(found), _parts_of(reference)
    if any(token.text == r"\pm" for token in flat((*found, *reference))):
        return None
    if parts is None or wanted is None:
        if wanted is not None and wanted.kind == "()" and _is_changed(found):
            return False
        several, other = (parts, reference) if parts else (wanted, found)
        is_list = several is not None and several.kind == "list"
        return False if is_list and number_of(split_unit(other)[0]) is not None else None
    is_ordered = _order_counts(parts.kind, wanted.kind)
    if is_ordered is None:
        return False if _can_never_be(parts, wanted) else None
    if [len(row) for row in parts.rows] != [len(row) for row in wanted.rows]:
        return False
    ones, others = (list(itertools.chain(*each.rows)) for each in (parts, wanted))
    if is_ordered:
        pairs = zip(ones, others, strict=True)
        return all(are_equal(one, other, compare) for one, other in pairs)
    if len(others) > MOST_UNORDERED:
        return None
    for one in ones:
        same = next((other for other in others if are_equal(one, other, compare)), None)
        if same is None:
            return False
        others.remove(same)
    return True


def _is_changed(tokens: Tokens) -> bool:
    """Whether a bracket has more around it than a name, as in -(1, 2), unlike P(1, 2)."""
    start = next((i for i, token in enumerate(tokens) if token.text[:1] == "("), None)
    if start is None:
        return False
    is_named = all(token.kind == "letter" for token in tokens[:start])
    return not (is_named and start == len(tokens) - 1)


_UNORDERED = ("list", "union", r"\{\}")


def _order_counts(kind: str, wanted: str) -> bool | None:
    """Say whether parts are compared in their order; None if the kinds are not comparable."""
    if kind == wanted or {kind, wanted} == {"()", r"\langle\rangle"}:
        return kind not in _UNORDERED
    if {kind, wanted} == {"list", r"\{\}"}:
        return False
    if {kind, wanted} == {"list", "()"}:  # (3, 5) for 3, 5
        return wanted == "()"
    return None


def _can_never_be(parts: Parts, wanted: Parts) -> bool:
    if wanted.kind[0] in "([" and parts.kind == r"\{\}":
        return True
    kinds = {parts.kind, wanted.kind}
    return kinds <= {"()", "[]", "(]", "[)"} and len(wanted.rows[0]) == 2


# ---- Answers with one value


def _by_values(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Compare numbers exactly, unless their units or bases differ, and all else as mathematics."""
    (value, unit), (wanted, wanted_unit) = split_unit(found), split_unit(reference)
    if unit and wanted_unit and unit != wanted_unit:
        return False
    (value, base), (wanted, wanted_base) = split_base(value), split_base(wanted)
    if base and wanted_base and base != wanted_base:
        return False
    shares = is_percentage(value), is_percentage(wanted)
    if (unit and shares[1]) or (wanted_unit and shares[0]):  # 5° for 5%
        return False
    number, target = (
        number_of(trimmed(side[:-1]) if is_share else side)
        for side, is_share in zip((value, wanted), shares, strict=True)
    )
    if number is not None and target is not None:
        if shares == (False, True):  # 12.5 and 0.125 are 12.5%
            return same_number(number, target) or same_number(number, target / 100)
        if shares == (True, False):  # Math-Verify knows of some problems that ask for 10 with 10%
            return same_number(number / 100, target) or None
        return same_number(number, target)
    if not value or not wanted or any(map(_is_ambiguous, (value, wanted))):
        return False
    return compare(_in_radians(value), _in_radians(wanted)) or None


def _is_ambiguous(tokens: Tokens) -> bool:
    r"""Whether Math-Verify would take a number out of what is not one: 3 4, `\text{2k}`."""
    followed = itertools.pairwise(flat(tokens))
    glued = any(one.kind == "number" and after.kind == "words" for one, after in followed)
    return glued or bool(re.search(r"\d \d|\d\\text\{\w\}", render(tokens)))


def _in_radians(tokens: Tokens) -> str:
    r"""Write the degrees of an angle within an expression as radians: `\sin 30^\circ`."""
    return re.sub(r"([\d.]+)\\degree(?![a-zA-Z])", r"\\frac{\1\\pi}{180}", render(tokens))
