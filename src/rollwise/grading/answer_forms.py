r"""Whether two final answers are equal, whatever form people give them.

Each is read as tokens (`answer_tokens`), and compared by what it certainly says: a number, words, a
unit, the parts of a list, a set, an interval or a matrix, the right side of `x = 5`. All other
mathematics is Math-Verify's.
"""

import itertools
import re
from collections.abc import Callable, Sequence

from rollwise.grading.answer_parts import Parts, closes_last, is_equals, parts_of, split, split_list
from rollwise.grading.answer_tokens import (
    OPEN,
    SPACE,
    Token,
    Tokens,
    closing,
    render,
    tokenize,
    trimmed,
)
from rollwise.grading.answer_values import (
    choice_of,
    is_percentage,
    number_of,
    same_number,
    split_base,
    split_unit,
    words_of,
)

Compare = Callable[[Tokens, Tokens], bool]
"""Whether two answers without any of our forms are mathematically equal."""

MOST_UNORDERED = 12
"""Parts of a list whose order does not count; longer ones are Math-Verify's."""


def are_equal(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Say whether an answer is the reference; None if it cannot be told from the forms."""
    found, reference = without_marks(found), without_marks(reference)
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


# ---- Marks around an answer

_BEFORE = frozenset(
    (
        *("=", ":", r"\approx", r"\simeq", r"\sim", r"\cong", r"\doteq", r"\therefore"),
        *(r"\implies", r"\Rightarrow", "about", "approximately", "approx"),
    )
)
_AFTER = frozenset((".", ",", ";", ":", r"\checkmark", r"\blacksquare", r"\square", r"\qed"))


def without_marks(tokens: Tokens) -> Tokens:
    """Take away what stands before and after an answer: "=", "about", a full stop."""
    first, last = 0, len(tokens)
    while first < last and (tokens[first] == SPACE or tokens[first].text.casefold() in _BEFORE):
        first += 1
    while first < last and (tokens[last - 1] == SPACE or tokens[last - 1].text in _AFTER):
        last -= 1
    if first and first < last and tokens[first].text == ".":  # approx.
        first += 1
    return trimmed(tokens[first:last])


# ---- Equations


def _by_equations(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Compare the right sides of `x = 5`; None if neither answer is an equation."""
    if any(len(split_list(answer)) > 1 for answer in (found, reference)):
        return None
    sides, wanted = (split(answer, is_equals) for answer in (found, reference))
    if len(sides) == len(wanted) == 1:
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
    if not any(token.kind == "letter" for token in side):
        return True
    depth, i = 0, 0
    while i < len(side):
        if side[i].text == "_" and i + 1 < len(side):
            i = closing(side, i + 1) if side[i + 1] == OPEN else i + 1
        elif render(side[i : i + 5]) == "^{-1}":
            i += 4
        depth += (side[i].text in ("(", "[", r"\{")) - (side[i].text in (")", "]", r"\}"))
        if side[i].kind == "number" and depth == 0 and side[i - 1].text not in ("_", r"\angle"):
            return False
        i += 1
    return True


# ---- Answers with several parts


def _by_parts(found: Tokens, reference: Tokens, compare: Compare) -> bool | None:
    """Compare answers of several parts one by one; None if it cannot be told."""
    parts, wanted = parts_of(found), parts_of(reference)
    if any(token.text == r"\pm" for token in (*found, *reference)):
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
    if is_ordered:
        pairs = zip(parts.items, wanted.items, strict=True)
        return all(are_equal(one, other, compare) for one, other in pairs)
    if len(wanted.items) > MOST_UNORDERED:
        return None
    left = list(wanted.items)
    for one in parts.items:
        same = next((other for other in left if are_equal(one, other, compare)), None)
        if same is None:
            return False
        left.remove(same)
    return True


def _is_changed(tokens: Tokens) -> bool:
    """Whether a bracket has more around it than a name, as in -(1, 2), unlike P(1, 2)."""
    start = next((i for i, token in enumerate(tokens) if token.text == "("), 0)
    is_named = all(token.kind == "letter" for token in tokens[:start])
    return tokens[start].text == "(" and not (is_named and closes_last(tokens[start:]))


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
    return kinds <= {"()", "[]", "(]", "[)"} and len(wanted.items) == 2


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
    return compare(in_radians(value), in_radians(wanted)) or None


def _is_ambiguous(tokens: Tokens) -> bool:
    r"""Whether Math-Verify would take a number out of what is not one: 3 4, `\text{2k}`."""
    followed = itertools.pairwise(tokens)
    glued = any(one.kind == "number" and after.kind == "words" for one, after in followed)
    return glued or bool(re.search(r"\d \d|\d\\text\{\w\}", render(tokens)))


def in_radians(tokens: Sequence[Token]) -> Tokens:
    r"""Write the degrees of an angle within an expression as radians: `\sin 30^\circ`."""
    done: list[Token] = []
    for token in tokens:
        if token.text == r"\degree" and done and done[-1].kind == "number":
            done += tokenize(rf"\frac{{{done.pop().text}\pi}}{{180}}")
        else:
            done.append(token)
    return tuple(done)
