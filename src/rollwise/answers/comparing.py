"""Step three: whether two answers are equal, by their kinds."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

from rollwise.answers.evaluation import names_of, proportional, same_expression, value_of
from rollwise.answers.nodes import COMPOUNDS, INFINITY, LISTS, SET, Node, minus, name, number
from rollwise.answers.units import base_units

_TUPLES = {"()", "⟨⟩"}


def are_equal(found: Node, reference: Node) -> bool:
    """Return whether an answer equals the reference."""
    if found == reference:
        return True
    verdict = _for_kinds(found, reference)
    if verdict is None:
        verdict = _for_kinds(reference, found)
    return _in_another_form(found, reference) if verdict is None else verdict


def _in_order(found: Sequence[Node], reference: Sequence[Node]) -> bool:
    return len(found) == len(reference) and all(map(are_equal, found, reference))


def _in_any_order(found: Sequence[Node], reference: Sequence[Node]) -> bool:
    left = list(reference)
    for item in found:
        place = next((i for i, other in enumerate(left) if are_equal(item, other)), None)
        if place is None:
            return False
        del left[place]
    return not left


def _for_kinds(one: Node, other: Node) -> bool | None:
    """Compare by the rule for two kinds, in this order; None if there is no such rule."""
    if one.is_expression and other.is_expression:
        return same_expression(one, other)
    match one, other:
        case Node("words"), Node("words"):
            return _same_words(one, other)
        case Node("words", (product,)), _ if other.is_expression:
            return same_expression(product, other)
        case Node("quantity"), Node("quantity"):
            return _same_quantities(one, other)
        case Node("relation"), Node("relation"):
            return _same_relations(one, other)
        case Node("relation"), Node(kind, (_, _), variable) if kind in COMPOUNDS and variable:
            return _is_interval(one, other)
        case _, Node(":", parts) if one.is_expression:
            value = value_of(one)  # 3:2 is 1.5, but 2:1 is not written as 2
            is_fractional = isinstance(value, Fraction) and value.denominator > 1
            return is_fractional and len(parts) == 2 and same_expression(Node("/", parts), one)
        case _, Node("–", (low, high)) if one.is_expression:  # a range with a minus for its dash
            return one == Node("+", (low, minus(high)))
        case _, Node("()", ends) if one.value in ("\\R", "R"):
            return ends == (minus(INFINITY), INFINITY)
        case Node("∪"), Node("," | "or"):
            return _in_any_order(one.parts, other.parts)
    if one.kind in LISTS and other.kind in LISTS:
        return _same_lists(one, other)
    if {one.kind, other.kind} <= COMPOUNDS and one.kind not in LISTS and other.kind not in LISTS:
        return _same_compounds(one, other)
    return None


def _in_another_form(found: Node, reference: Node) -> bool:
    """Compare answers of different kinds, of which one may be written for the other."""
    if {found.kind, reference.kind} <= COMPOUNDS:
        return _list_and_brackets(found, reference)
    if found.kind in LISTS:  # one value in two forms: 1 1/2, or 3/2
        is_one = found.kind != "and" and len(set(found.parts)) == len(found.parts)
        return is_one and all(are_equal(item, reference) for item in found.parts)
    match found, reference:
        case Node("relation"), _ if set(found.value) == {"="}:
            return _equation_for_value(found, reference)
        case _, Node("relation") if set(reference.value) == {"="}:  # x = 5, which names a value
            *asked, last = reference.parts
            return any(map(_is_asked, asked)) and are_equal(found, last)
        case (Node("quantity") as quantity, bare) | (bare, Node("quantity") as quantity):
            return _without_unit(quantity, bare)
    return False


# ---- One value


def _same_words(one: Node, other: Node) -> bool:
    if one.value.casefold() == other.value.casefold():
        return len(one.value) > 1 or one.value == other.value
    return bool(one.parts and other.parts) and same_expression(one.parts[0], other.parts[0])


def _same_quantities(one: Node, other: Node) -> bool:
    (factor, base), (other_factor, other_base) = base_units(one.value), base_units(other.value)
    is_general = [dict(each).keys() == {"unit"} for each in (base, other_base)]
    is_other = is_general[0] == is_general[1] or ("percent", 1) in base + other_base
    if base and other_base and base != other_base and is_other:
        return False
    if base != other_base or factor == other_factor:
        return are_equal(one.parts[0], other.parts[0])
    return _is_multiple(one.parts[0], factor / other_factor, other.parts[0])


def _is_multiple(one: Node, factor: Fraction, other: Node) -> bool:
    are_expressions = one.is_expression and other.is_expression
    return are_expressions and same_expression(Node("*", (one, number(factor))), other)


def _without_unit(quantity: Node, bare: Node) -> bool:
    """Compare with a value whose unit is left out.

    Degrees may be radians, which are not rational; 12.5 % is 12.5, as benchmarks write it, and
    0.125; 10:30 p.m. is 10:30 and 22:30.
    """
    value, *product = quantity.parts
    unit = quantity.value[0][0]
    if bare.is_expression and value.is_expression:
        if unit == "degree" and not isinstance(value_of(bare), Fraction | None):
            return same_expression(Node("°", (value,)), bare)
        if unit != "degree" and product and names_of(bare):  # 5m is also a product
            return same_expression(product[0], bare)
    if unit == "percent" and _is_multiple(value, Fraction(1, 100), bare):
        return True
    if value.kind == ":":  # part by part: 1:30 is not 2:60
        hour, *rest = value.parts
        hours = (hour, Node("+", (hour, number(12)))) if unit == "p.m." else (hour,)
        return bare.kind == ":" and any(_in_order((h, *rest), bare.parts) for h in hours)
    return are_equal(value, bare)


# ---- Several values


def _same_lists(one: Node, other: Node) -> bool:
    are_said = not all(p.is_expression or p.kind == "quantity" for p in one.parts + other.parts)
    if {one.kind, other.kind} == {"and", "or"} and are_said:
        return False
    if all(part.kind in COMPOUNDS for part in one.parts + other.parts):
        return _is_within(one, other) and _is_within(other, one)  # a double root is two, a pair one
    return _in_any_order(one.parts, other.parts)


def _is_within(one: Node, other: Node) -> bool:
    return all(any(are_equal(item, each) for each in other.parts) for item in one.parts)


def _same_compounds(one: Node, other: Node) -> bool:
    if one.value and other.value and one.value != other.value:
        return False
    if one.kind != other.kind and not {one.kind, other.kind} <= _TUPLES:
        return False
    if one.kind == ":" and not any(value_of(part) == 0 for part in one.parts + other.parts):
        pairs = itertools.combinations(zip(one.parts, other.parts, strict=False), 2)
        is_same = (
            same_expression(Node("*", (a, d)), Node("*", (b, c))) for (a, b), (c, d) in pairs
        )
        return len(one.parts) == len(other.parts) and all(is_same)
    compared = _in_any_order if one.kind in (SET, "∪") else _in_order
    return compared(one.parts, other.parts)


def _list_and_brackets(found: Node, reference: Node) -> bool:
    r"""Compare `1, 2` or `x = 1, y = 2` with `(1, 2)` or `\{1, 2\}`."""
    is_list = found.kind in LISTS
    several, brackets = (found, reference) if is_list else (reference, found)
    is_tuple = brackets.kind in (_TUPLES if is_list else {"()"}) and not brackets.value
    is_unordered = brackets.kind == SET or (is_tuple and not is_list)
    values = [item.parts[-1] if item.kind == "relation" else item for item in several.parts]
    return (is_unordered and _in_any_order(found.parts, reference.parts)) or (
        is_tuple and _in_order(brackets.parts, values)
    )


# ---- Equations and inequalities


def _is_asked(node: Node) -> bool:
    """Return whether a left side names something: x, f(2), |AB|, A:B."""
    if node.kind in ("*", "abs", "/"):
        return all(map(_is_asked, node.parts))
    if node.is_expression:
        return node.kind in ("name", "call")
    return node.kind not in ("quantity", *LISTS)


def _same_relations(one: Node, other: Node) -> bool:
    if one.value == other.value and len(one.value) > 1 and "=" not in one.value:
        return _in_order(one.parts, other.parts)  # f(2) < f(1) < f(4)
    signs = {*one.value, *other.value}
    if len(signs) > 1 or (signs != {"="} and len(one.value + other.value) > 2):
        return False
    (a, *_, b), (c, *_, d) = one.parts, other.parts
    if a == c or (signs == {"="} and are_equal(a, c)):
        return are_equal(b, d)
    if not all(side.is_expression for side in (a, b, c, d)):
        return False
    ratio = proportional(Node("+", (a, minus(b))), Node("+", (c, minus(d))))
    return ratio > 0 or (ratio < 0 and signs <= {"=", "≠"})


def _is_interval(relation: Node, interval: Node) -> bool:
    """Return whether an inequality is an interval without bound on one side: -x > -1, x < 1."""
    low, high = interval.parts
    is_below, is_above = low == minus(INFINITY), high == INFINITY
    sign = "≤" if {*interval.kind} & {"[", "]"} else "<"
    sides = (name(interval.value), high) if is_below else (low, name(interval.value))
    return is_below != is_above and _same_relations(relation, Node("relation", sides, (sign,)))


def _is_unsolved(node: Node) -> bool:
    """Return whether a left side is still to be solved: 2x = 10, unlike x² + y² = 25.

    That is a polynomial, root or logarithm of one variable, or a sum with a number in it.
    """
    if node.kind in ("name", "call") or not names_of(node):
        return False
    if node.kind == "+" and not all(names_of(term) for term in node.parts):
        return True
    known = ("number", "name", "neg", "+", "*", "/", "^", "mixed", "root", "log")
    is_plain = all(n.kind in known and "_" not in str(n.value) for n in node.walk())  # not of a_5
    has_quotient = any(n.kind == "/" and names_of(n.parts[1]) for n in node.walk())
    return is_plain and not has_quotient and len(names_of(node)) == 1


def _equation_for_value(found: Node, reference: Node) -> bool:
    """Compare `x = 5` with 5; an equation that is to be solved is no value."""
    first, *_, last = found.parts
    if first.kind == last.kind == "()" and reference.kind in LISTS:  # (x, y) = (1, 2)
        pairs = zip(first.parts, last.parts, strict=False)
        return _in_any_order([Node("relation", pair, ("=",)) for pair in pairs], reference.parts)
    if last.kind in ("name", "call") and first.kind not in ("name", "call"):  # 3 = x
        first, last = last, first
    return not (first.is_expression and _is_unsolved(first)) and are_equal(last, reference)
