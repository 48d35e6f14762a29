"""What reading returns and comparing takes: one kind of tree for answers and expressions."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

SET, LISTS = "⦃⦄", (",", "and", "or")
COMPOUNDS = frozenset((*LISTS, "()", "⟨⟩", "[]", "[)", "(]", SET, "∪", ":", "–", "⟦⟧", "⟪⟫", "&"))
ANSWERS = COMPOUNDS | {"words", "quantity", "relation", "other"}

Unit = tuple[tuple[str, int], ...]
"""Names and their powers, as they were written."""


class Unreadable(Exception):
    """A text is no answer of a known kind, or reading or comparing it would take too long."""


class Number(NamedTuple):
    """A number in digits: its exact value, and the decimal places it is written with."""

    value: Fraction
    places: int = 0


class Node(NamedTuple):
    """An answer, or an operation of an expression, and its parts.

    Attributes:
        kind: An operation (`number`, `name`, `+`, `sin`, …), or a kind of answer: what joins a list
            (`LISTS`), the brackets of a tuple, interval or `SET`, `∪`, `:` (a ratio), `–` (a
            range), `⟦⟧` (a matrix) or `⟪⟫` (a determinant) of rows (`&`), `relation`, `words`,
            `quantity` or `other`.
        parts: Those, or the sides of a relation, or the value of a quantity. A second part of a
            quantity, or one of words, is the product that letters may also be: `5m`, `abc`.
        value: The `Number`, name or words; the `Unit` of a quantity, which may also be "percent",
            "base 8" or "p.m."; the signs of a relation; the x of the interval `x > 2`; whether
            Math-Verify may read what is `other`.
    """

    kind: str
    parts: tuple["Node", ...] = ()
    value: Any = None

    @property
    def is_expression(self) -> bool:
        """Whether this is a number or an expression."""
        return self.kind not in ANSWERS

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all that are in it."""
        stack = [self]
        while stack:
            stack.extend((node := stack.pop()).parts)
            yield node


def number(value: Fraction | int) -> Node:
    """Return a number."""
    return Node("number", value=Number(Fraction(value)))


def name(text: str) -> Node:
    """Return a variable or constant."""
    return Node("name", value=text)


def minus(node: Node) -> Node:
    """Return the negative of an expression."""
    return Node("neg", (node,))


INFINITY, REALS = name("∞"), name("\\R")
