"""The parts of a final answer: of lists, sets, tuples, intervals, unions, matrices, equations."""

import re
from collections.abc import Callable
from typing import NamedTuple

from rollwise.grading.answer_tokens import OPEN, SPACE, Token, Tokens, closing, render, trimmed


class Parts(NamedTuple):
    """The parts of an answer that has several.

    Attributes:
        kind: `list`, `union`, `matrix`, `vmatrix`, or the two brackets around it.
        rows: Of a matrix; all else has one row.
    """

    kind: str
    rows: tuple[tuple[Tokens, ...], ...]

    @property
    def items(self) -> tuple[Tokens, ...]:
        """The parts in their order."""
        return tuple(item for row in self.rows for item in row)


_BRACKETS = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle"}
_CLOSERS = frozenset((*_BRACKETS.values(), "}"))
_ENVIRONMENT = re.compile("(p|b|B|v|V|small)?matrix|array")


def _is_comma(token: Token) -> bool:
    return token.text in (",", ";") or (token.kind == "words" and token.text in ("and", "or"))


def is_equals(token: Token) -> bool:
    """Whether a token stands between the sides of an equation."""
    return token.text == "="


def _is_union(token: Token) -> bool:
    return token.text == r"\cup" or token == Token("words", "or")


def split(tokens: Tokens, is_separator: Callable[[Token], bool]) -> list[Tokens]:
    """Split an answer at the separators outside of all brackets; empty parts are left out."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for i, token in enumerate(tokens):
        if token.text in (*_BRACKETS, "{"):
            depth += 1
        elif token.text in _CLOSERS:
            depth -= 1
        begins = [t.text for t in tokens[i : i + 2]] == [r"\begin", "{"]
        depth += begins - ([t.text for t in tokens[i : i + 2]] == [r"\end", "{"])
        if depth == 0 and is_separator(token):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in map(trimmed, parts) if part]


def split_list(tokens: Tokens) -> list[Tokens]:
    """Split an answer such as `2, -3` into its values."""
    return split(tokens, _is_comma)


def parts_of(tokens: Tokens) -> Parts | None:
    """Read a list, a set, an interval, a tuple, a union or a matrix; None of anything else."""
    if (
        len(tokens) > 2
        and tokens[0].kind == "letter"
        and r"\in" in (tokens[1].text, tokens[2].text)
    ):
        return parts_of(trimmed(tokens[2 + (tokens[1] == SPACE) :]))
    unions = split(tokens, _is_union)
    if len(unions) > 1 and all(_interval(each) or parts_of(each) for each in unions):
        return Parts("union", (tuple(unions),))
    listed = split_list(tokens)
    if len(listed) > 1:
        return Parts("list", (tuple(listed),))
    if matrix := _matrix(tokens):
        return matrix
    if interval := _interval(tokens):
        return interval
    opening, closer = (tokens[0].text, tokens[-1].text) if tokens else ("", "")
    is_bracketed = len(tokens) > 2 and opening in _BRACKETS and closer in _BRACKETS.values()
    if not is_bracketed or not closes_last(tokens):
        return None
    return Parts(opening + closer, (tuple(split(trimmed(tokens[1:-1]), _is_comma)),))


def closes_last(tokens: Tokens) -> bool:
    """Whether the bracket that opens first closes last."""
    depth = 0
    for i, token in enumerate(tokens):
        depth += (token.text in (*_BRACKETS, "{")) - (token.text in _CLOSERS)
        if depth == 0:
            return i == len(tokens) - 1
    return False


def _matrix(tokens: Tokens) -> Parts | None:
    if [token.text for token in tokens[:2]] != [r"\begin", "{"]:
        return None
    start = closing(tokens, 1) + 1
    name = render(tokens[2 : start - 1])
    ends = [
        i for i in range(len(tokens) - 1) if tokens[i].text == r"\end" and tokens[i + 1] == OPEN
    ]
    if (
        not _ENVIRONMENT.fullmatch(name)
        or not ends
        or closing(tokens, ends[0] + 1) != len(tokens) - 1
    ):
        return None
    if name == "array" and tokens[start : start + 1] == (OPEN,):
        start = closing(tokens, start) + 1
    rows = split(tokens[start : ends[0]], lambda token: token.kind == "row")
    kind = "vmatrix" if name in ("vmatrix", "Vmatrix") else "matrix"
    return Parts(kind, tuple(tuple(split(row, lambda token: token.text == "&")) for row in rows))


INFINITY = Token("command", r"\infty")
_LESS, _MORE = ("<", r"\le"), (">", r"\ge")


def _interval(tokens: Tokens) -> Parts | None:
    r"""Read an inequality such as `x > 2` or `1 < x \le 3` as an interval."""
    signs = [token.text for token in tokens if token.text in _LESS + _MORE]
    sides = split(tokens, lambda token: token.text in _LESS + _MORE)
    if not signs or len(sides) != len(signs) + 1:
        return None
    if any(sign in _MORE for sign in signs):
        if any(sign in _LESS for sign in signs):
            return None
        signs = [_LESS[_MORE.index(sign)] for sign in reversed(signs)]
        sides.reverse()
    names = [len(side) == 1 and side[0].kind == "letter" for side in sides]
    if len(sides) == 3 and names == [False, True, False]:
        low, high = sides[0], sides[2]
    elif names == [True, False]:
        low, high, signs = (Token("mark", "-"), INFINITY), sides[1], ["<", *signs]
    elif names == [False, True]:
        low, high, signs = sides[0], (INFINITY,), [*signs, "<"]
    else:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Parts(brackets, ((low, high),))
