"""Whether expressions are equal, by their values: exact while rational, else to 120 digits."""

import contextlib
import math
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath

from rollwise.answers.nodes import Node, Number, Unreadable

Value = Any
"""A `Fraction`, or a real or complex number of mpmath's."""

LARGEST_BITS = 20_000
"""Bits of an exact result; what is larger is rounded, or refused."""
LARGEST_EXPONENT, LARGEST_FACTORIAL = 10**6, 1000
STEPS = 4000
"""Operations in one evaluation."""

mp = mpmath.mp.clone()
mp.dps = 120
_real = mp.convert

_EQUAL = mp.mpf(10) ** -90
"""How near to each other, by their size, values are that are equal; all have 120 digits."""


class Undefined(Exception):
    """There is no value here: a division by zero, or a root that is not real."""


def same_expression(first: Node, second: Node) -> bool:
    """Return whether two expressions are equal wherever both have a value.

    They are evaluated with the same values for their variables: rational numbers, positive and
    negative, and whole ones (Schwartz-Zippel). A variable is real, and so are the values, if they
    are anywhere. A logarithm without a base has base 10 or e. Numbers in digits are exact, except
    that those with six or more decimal places may be rounded: then values are equal that differ by
    less than 1e-6, and by no more than 1e-5 of their size.
    """
    nodes = [*first.walk(), *second.walk()]
    places = max((n.value.places for n in nodes if n.kind == "number"), default=0)
    fields = (True, False) if names_of(first) or names_of(second) else (False,)
    for base in (10, mp.e) if any(node.kind == "log" for node in nodes) else (10,):
        for is_real in fields:
            values = _evaluated(first, second, base, is_real)
            verdicts = (_same(*each, places) for each in values)
            agree = next(verdicts, None)
            if agree is not None:
                break
        if agree and all(verdicts):
            return True
    return False


def _evaluated(
    first: Node, second: Node, base: Value = 10, is_real: bool = True
) -> Iterator[tuple[Value, Value, Value]]:
    """Yield both values, and the size of the largest term, at each point where both have one."""
    for point in range(6 if is_real else 2):
        evaluation = _Evaluation(point, base, is_real)
        with contextlib.suppress(Undefined):
            yield evaluation.value(first), evaluation.value(second), evaluation.scale


def _same(one: Value, other: Value, scale: Value = 0, places: int = 0) -> bool:
    """Return whether values are equal; a sum's rounding error is a part of its largest term."""
    if one == other:
        return True
    difference, largest = abs(_real(one) - _real(other)), max(abs(_real(one)), abs(_real(other)))
    if places >= 6 and difference < 1e-6 and difference <= largest / 10**5:
        return True
    are_exact = isinstance(one, Fraction) and isinstance(other, Fraction)
    return not are_exact and bool(difference <= _EQUAL * max(largest, _real(scale)) < mp.inf)


def value_of(node: Node) -> Value | None:
    """Return the value of an expression without variables; None if it has some, or no value."""
    try:
        return None if names_of(node) else _Evaluation(is_real=False).value(node)
    except (Undefined, Unreadable):
        return None


def proportional(first: Node, second: Node) -> int:
    """Return the sign of the constant by which one expression is another; 0 if there is none."""
    ratios = []
    for above, below, _ in _evaluated(first, second):
        is_zero = {abs(_real(value)) < _EQUAL for value in (above, below)}
        if is_zero == {True, False}:
            return 0
        if is_zero == {False}:
            ratios.append(_divided(above, below))
    if not ratios or not all(_same(ratio, ratios[0]) for ratio in ratios):
        return 0
    return 1 if mp.re(ratios[0]) > 0 else -1


def names_of(node: Node) -> set[str]:
    """Return the names of the variables and unknown functions of an expression."""
    return {n.value for n in node.walk() if n.kind in ("name", "call")} - _CONSTANTS.keys()


# ---- The value of an expression at a point


class _Evaluation:
    """Evaluates expressions at one of six points, where any variable has a value."""

    def __init__(self, point: int = 0, log_base: Value = 10, is_real: bool = True) -> None:
        self._point, self._log_base, self._is_real = point, log_base, is_real
        self._steps = 0
        self.scale: Value = 0  # the size of the largest term of a sum that is not rational

    def value(self, node: Node) -> Value:
        """Return the value of an expression; raise `Undefined` if it has none here."""
        self._steps += 1
        if self._steps > STEPS:
            raise Unreadable("too long")
        if isinstance(node.value, Number):
            return node.value.value
        if node.kind == "name":
            self._is_real &= node.value != "i"
            return _CONSTANTS[node.value] if node.value in _CONSTANTS else self._drawn(node.value)
        values = [self.value(part) for part in node.parts]
        if node.kind == "call":
            rounded = [str(v) if isinstance(v, Fraction) else mp.nstr(v, 40) for v in values]
            return self._drawn(f"{node.value}{rounded}")
        own = {"+": self._sum, "^": self._power, "root": self._root, "log": self._log}
        function = own.get(node.kind) or _FUNCTIONS.get(node.kind)
        try:
            return self._checked(function(*values) if function else _of_mpmath(node.kind, *values))
        except (ArithmeticError, AttributeError, ValueError, TypeError) as error:
            raise Undefined from error

    def _checked(self, value: Value) -> Value:
        if isinstance(value, Fraction):
            return value if _bits(value) <= LARGEST_BITS else _real(value)
        if mp.im(value) == 0:
            value = mp.re(value)
        elif self._is_real:
            raise Undefined
        if mp.isnan(value):
            raise Undefined
        return value

    def _drawn(self, name: str) -> Fraction:
        """Return the value of a variable, which depends on nothing but its name."""
        drawn = zlib.crc32(f"{self._point} {name}".encode())
        if self._point in (4, 5):
            return Fraction(2 + drawn % 13)
        sign = -1 if self._point in (2, 3) and drawn % 5 else 1
        return sign * (Fraction(1, 7) + Fraction(drawn % 9973, 3001))

    def _sum(self, *terms: Value) -> Value:
        if not all(isinstance(term, Fraction) for term in terms):
            self.scale = max(self.scale, *(abs(_real(term)) for term in terms))
        return sum(terms)

    def _log(self, value: Value, base: Value | None = None) -> Value:
        if value == 0 or (self._is_real and value < 0):
            raise Undefined
        return mp.log(value) / mp.log(self._log_base if base is None else base)

    def _power(self, base: Value, exponent: Value) -> Value:
        is_whole = _is_whole(exponent)
        if base == 0:
            if is_whole and exponent <= 0:
                raise Undefined
            return Fraction(0)
        if is_whole and isinstance(base, Fraction) and _bits(base) * abs(exponent) <= LARGEST_BITS:
            return base ** int(exponent)
        size = abs(_real(exponent)) * max(1, abs(mp.log(abs(_real(base)))))
        if size > LARGEST_EXPONENT:
            raise Unreadable("too large")
        if not is_whole and self._is_real and not base > 0:
            raise Undefined
        return mp.power(base, int(exponent) if is_whole else exponent)

    def _root(self, value: Value, index: Value = Fraction(2)) -> Value:
        if _is_whole(index) and index % 2 == 1 and mp.im(value) == 0 and value < 0:
            return -self._power(-value, 1 / index)  # the real one
        return self._power(value, _divided(Fraction(1), index))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _is_whole(value: Value) -> bool:
    return isinstance(value, Fraction) and value.denominator == 1


def _divided(above: Value, below: Value) -> Value:
    if isinstance(above, Fraction) and isinstance(below, Fraction):
        return above / below
    return _real(above) / below


def _of_whole(function: Callable[..., int], largest: int = LARGEST_FACTORIAL) -> Any:
    """Make a function of whole numbers one of values; it is undefined for others."""

    def evaluate(*values: Value) -> Value:
        if not all(_is_whole(value) and value >= 0 for value in values):
            raise Undefined
        if max(values) > largest:
            raise Unreadable("too large")
        return Fraction(function(*map(int, values)))

    return evaluate


def _of_mpmath(function: str, value: Value) -> Value:
    if abs(value) > LARGEST_EXPONENT:
        raise Unreadable("too large")
    return getattr(mp, function.replace("arc", "a"))(value)


_CONSTANTS: dict[str, Value] = {"\\pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1), "∞": mp.inf}
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "neg": lambda value: -value,
    "*": lambda *factors: math.prod(factors),
    "/": _divided,
    "mixed": lambda whole, part: whole + part if 0 < part < 1 else whole * part,
    "abs": abs,
    "!": _of_whole(math.factorial),
    "!!": _of_whole(lambda n: math.prod(range(n, 0, -2))),
    "binom": _of_whole(math.comb),
    "°": lambda value: value * mp.pi / 180,
    "max": lambda *values: max(values, key=_real),
    "min": lambda *values: min(values, key=_real),
    "gcd": _of_whole(math.gcd, 10**18),
    "lcm": _of_whole(math.lcm, 10**18),
    "floor": lambda value: Fraction(int(mp.floor(_real(value)))),
    "ceil": lambda value: Fraction(int(mp.ceil(_real(value)))),
}
"""Those of fractions; the others are mpmath's."""
