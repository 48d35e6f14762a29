"""Values with something after them (a unit, a percent sign, a base, a time of day), and dates.

Units are compared by `pint`, which is only given names to look up.
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rollwise.answers import vocabulary
from rollwise.answers.expressions import parse
from rollwise.answers.nodes import Node, Unit, Unreadable, number
from rollwise.answers.tokens import Token, Tokens, plain
from rollwise.answers.vocabulary import MULTIPLES

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATE = re.compile(
    rf"(?:(\d\d?) )?({_MONTHS})(?:uary|ruary|ch|il|e|y|ust|t?ember|ober)?"
    r"(?: (\d\d?))?(?: (\d{4}))?"
)
_IN_DATES = re.compile(r"\b(?:the|of|[a-z]+day)\b|(?<=\d) ?(?:st|nd|rd|th)\b|[,.]")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIME = re.compile(r"(\d\d?)(?: ?: ?(\d\d))? ?([ap]) ?\.? ?m ?\.?")
_BASED = re.compile(r"\(?(-?[A-Z]?\d[\dA-Za-z.]*|[A-Z]{2,})\)? ?(?:_| base )\(?(\w+)\)?")


def _quantity(value: Node, unit: str) -> Node:
    return Node("quantity", (value,), ((unit, 1),))


def date(tokens: Tokens) -> Node | None:
    """Read `May 5, 2020`, `5 May` and `2020-05-05`."""
    text = " ".join(_IN_DATES.sub(" ", plain(tokens).lower()).split())
    if iso := _ISO.fullmatch(text):
        return Node("words", value="{}-{}-{}".format(*map(int, iso.groups())))
    found = _DATE.fullmatch(text)
    if found is None or not (found[1] or found[3] or found[4]):
        return None
    month = _MONTHS.split("|").index(found[2]) + 1
    return Node("words", value=f"{found[4] or 0}-{month}-{int(found[1] or found[3] or 0)}")


def time(tokens: Tokens) -> Node | None:
    """Read `10:30 AM`; without "a.m." or "p.m." it is a ratio."""
    found = _TIME.fullmatch(plain(tokens).lower())
    if found is None:
        return None
    hour, minute, half = found.groups()
    clock = (number(int(hour) % 12), number(int(minute or 0)))
    return _quantity(Node(":", clock), f"{half}.m.")


def based(tokens: Tokens) -> Node | None:
    """Read `52_8`, `1A_{16}` and `101 base two`."""
    found = _BASED.fullmatch(plain(tokens))
    if found is None:
        return None
    digits, base = found[1].upper(), found[2].lower()
    is_decimal = digits.lstrip("-").isdecimal()
    value = number(int(digits)) if is_decimal else Node("words", value=digits)
    return _quantity(value, f"base {vocabulary.BASES.get(base, base)}")


def quantity(tokens: Tokens) -> Node | None:
    """Read a value with a unit after it, or a currency before it; 6 feet 2 inches are one."""
    if found := _money(tokens):
        return found
    for i in range(1, len(tokens)):
        if not _begins_unit(tokens, i):
            continue
        factor = MULTIPLES.get(tokens[i].text.lower().removesuffix("s"))
        start = i + 1 if factor else i
        value = Node("*", (parse(tokens[:i]), number(factor or 1)))
        if start == len(tokens):
            return value
        ends = (j for j in range(start + 1, len(tokens)) if tokens[j].kind == "number")
        end = next((j for j in ends if tokens[j - 1].word or tokens[j - 1].text in _NAMED), None)
        if unit := unit_of(tokens[start:end]):
            first = Node("quantity", (value, *product_of(tokens)), unit)
            rest = quantity(tokens[end:]) if end else None
            return total([first, rest]) if rest else first if end is None else None
    return None


def _money(tokens: Tokens) -> Node | None:
    if len(tokens) > 2 and tokens[0].text == "-" and tokens[1].kind == "unit":
        tokens = [tokens[1], tokens[0], *tokens[2:]]
    is_currency = tokens[0].kind == "unit" or tokens[0].text in vocabulary.CURRENCIES
    if len(tokens) < 2 or not is_currency:
        return None
    inner = quantity(tokens[1:]) or parse(tokens[1:])
    if inner.kind != "quantity":
        return _quantity(inner, tokens[0].text)
    return Node("quantity", inner.parts[:1], ((tokens[0].text, 1), *inner.value))


def _begins_unit(tokens: Tokens, i: int) -> bool:
    """Return whether a unit, or a word that multiplies, may begin here."""
    before, token, following = (*tokens, Token("", ""))[i - 1 : i + 2]
    if before.kind not in ("number", "close", "name") and before.text not in "!∞":
        return False
    if sum(t.depth for t in tokens[:i]):
        return False
    if token.kind in ("word", "unit") or token.text == "%":
        return True
    if token.text in ("°", "'"):
        is_angle = token.text == "°" or before.kind == "number"
        return is_angle and not any(t.text in _TRIGONOMETRIC for t in tokens[:i])
    if token.kind == "letters":
        return token.text in vocabulary.UNIT_LETTERS or (token.spaced and len(token.text) > 2)
    if token.kind != "name" or before.kind != "number":
        return False
    if token.text in vocabulary.UNIT_LETTER_PLAIN:
        return following.kind in ("", "number") or following.text in "/^"
    if token.text == "\\frac":
        return any(t.kind == "word" for t in tokens[i + 2 : i + 3])
    return token.text in vocabulary.UNIT_SYMBOLS and (token.spaced or following.kind == "word")


def product_of(tokens: Tokens) -> tuple[Node, ...]:
    """Return the expression that a value with a unit in plain letters may also be."""
    try:
        return (parse(tokens),)
    except Unreadable:
        return ()


def total(parts: Sequence[Node]) -> Node | None:
    """Add up quantities of one kind in different units: 2 hours and 30 minutes."""
    units = [p.value for p in parts if p.kind == "quantity" and p.parts[0].is_expression]
    if len(units) < len(parts) or len(set(units)) < len(units):
        return None
    factors, bases = zip(*map(base_units, units), strict=True)
    if len(set(bases)) > 1 or not bases[0]:
        return None
    terms = (
        Node("*", (part.parts[0], number(factor / factors[0])))
        for part, factor in zip(parts, factors, strict=True)
    )
    return Node("quantity", (Node("+", tuple(terms)),), units[0])


# ---- Names of units

_NAMED = vocabulary.UNIT_LETTER_PLAIN | {"°", "'"}
_TRIGONOMETRIC = frozenset({"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc"})
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_SPELLINGS = (
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2"),
    (r"\bper\b", "/"),
    (r"%|\b(?:percent(?:age)?|pct)\b", " percent "),
    ("°", " degree "),
    ("' ?'", " arcsecond "),
    ("'", " arcminute "),
    (r"\bdegrees? +(?:c|celsius)\b", "celsius"),
    (r"\bdegrees? +(?:f|fahrenheit)\b", "fahrenheit"),
    (r"\b(square|sq|cubic|cu)\.? (\w+)", lambda m: f"{m[2]}^{_POWERS[m[1].lower()]}"),
    (r"(\w) (squared|cubed)\b", lambda m: f"{m[1]}^{_POWERS[m[2].lower()]}"),
    (r"\b(?-i:of|the|a)\b|[{}().*]", " "),
)
_UNIT = re.compile(r"([^\W\d_]+)(?: ?\^ ?(-?\d))?")


def unit_of(tokens: Tokens) -> Unit | None:
    """Return the unit that tokens after a number name; None if they name none."""
    kinds = ["", *(token.kind for token in tokens)]
    text = "".join(
        " " * (token.spaced or kind == token.kind == "word")
        + vocabulary.UNIT_SYMBOLS.get(token.text, token.text)
        for token, kind in zip(tokens, kinds, strict=False)
    )
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    above, *below = text.split("/")
    unit = [(name, int(power or 1)) for name, power in _UNIT.findall(above)]
    unit += [(name, -int(power or 1)) for side in below for name, power in _UNIT.findall(side)]
    is_known = all(len(name) > 1 or name in vocabulary.UNIT_LETTER_IN_TEXT for name, _ in unit)
    if len(below) > 1 or not above.strip() or _UNIT.sub("", text).strip(" /") or not is_known:
        return None
    is_other = any(name.lower() in vocabulary.NO_UNITS for name, _ in unit)
    unit = unit[:1] if unit[0][0] == "percent" else unit  # of an increase
    return None if is_other or len(unit) > 4 else tuple(unit)


_CURRENCIES = (
    "dollar = [dollar] = _ = usd = buck",
    "cent = dollar / 100 = _ = penny = pennies",
    "euro = [euro] = _ = eur",
    "pound_sterling = [pound_sterling] = _ = gbp",
    "yen = [yen] = _ = jpy",
)
_OWN = frozenset({"unit", "celsius", "fahrenheit", "percent", "c", "f", "a.m.", "p.m."})
"""What is equal only to itself, and what pint would take for something else."""


@functools.lru_cache(maxsize=1)
def _registry() -> Any:
    import pint  # here, so that only workers pay for it

    registry: Any = pint.UnitRegistry(
        non_int_type=Fraction, cache_folder=None, on_redefinition="ignore"
    )
    for definition in _CURRENCIES:
        registry.define(definition)
    return registry


@functools.lru_cache(maxsize=4096)
def base_units(unit: Unit) -> tuple[Fraction, Unit]:
    """Return how many base units a unit is, and which; one that nobody knows is its own base."""
    factor, bases = Fraction(1), Counter[str]()
    for name, power in unit:
        one, base = _looked_up(name)
        factor *= one**power
        bases.update({each: exponent * power for each, exponent in base})
    return factor, tuple(sorted((each, power) for each, power in bases.items() if power))


def _looked_up(name: str) -> tuple[Fraction, Unit]:
    word = name.lower().removesuffix("s") if len(name) > 3 else name.lower()
    if word not in _OWN and not word.startswith("base "):
        registry = _registry()
        for tried in (name, name.lower()):
            found = registry.parse_unit_name(tried)
            if found and "_constant" not in found[0][1] and found[0][1] not in _CONSTANTS:
                factor, bases = registry.get_base_units("".join(found[0][:2]))
                return Fraction(factor), tuple((b, int(p)) for b, p in bases._units.items())
    return Fraction(1), ((word, 1),)


_CONSTANTS = frozenset({"pi", "elementary_charge", "speed_of_light"})
