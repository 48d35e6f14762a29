"""What a final answer says where that is certain: a number, words, a unit, a base."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from rollwise.grading.answer_tokens import DEGREE, SPACE, Token, Tokens, flat, render, trimmed

# ---- Numbers

_DIGITS = r"(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})"
_NUMBER = re.compile(
    rf"""(?P<sign>[-+]?)(?:
    (?:(?P<whole>\d{{1,300}})[ ]?)?\\frac\{{(?P<above>-?\d{{1,300}})\}}
        \{{(?P<below>-?\d{{1,300}})\}}
    |(?:(?P<units>\d{{1,300}})[ ])?(?P<over>{_DIGITS})/(?P<under>{_DIGITS})
    |(?P<start>\d{{1,300}}(?:\.\d{{0,300}})?)\.?\\overline\{{(?P<repeated>\d{{1,300}})\}}
    |(?P<factorial>\d{{1,3}})!
    |(?P<digits>{_DIGITS})(?:(?:[eE]|(?:\\times|\\cdot|\*|x|X)10\^)\{{?\(?(?P<power>[-+]?\d{{1,4}})\)?\}}?)?
    |10\^\{{?(?P<ten>[-+]?\d{{1,4}})\}}?
    )""",
    re.VERBOSE,
)


def number_of(tokens: Sequence[Token]) -> Fraction | None:
    """Return the exact value of a number in digits, in any notation; None of anything else."""
    found = _NUMBER.fullmatch(render(tokens))
    if found is None:
        return None
    value = _value_of(found)
    return -value if value is not None and found["sign"] == "-" else value


def _value_of(found: re.Match[str]) -> Fraction | None:
    if found["factorial"]:
        return Fraction(math.factorial(int(found["factorial"])))
    if found["ten"]:
        return Fraction(10) ** int(found["ten"])
    if found["digits"]:
        return _decimal(found["digits"]) * Fraction(10) ** int(found["power"] or 0)
    if found["repeated"]:
        shift = 10 ** len(found["start"].partition(".")[2])
        nines = 10 ** len(found["repeated"]) - 1
        return Fraction(Decimal(found["start"])) + Fraction(int(found["repeated"]), shift * nines)
    above, below = (
        _decimal(found[a] or found[b]) for a, b in (("above", "over"), ("below", "under"))
    )
    whole = int(found["whole"] or found["units"] or 0)
    if below == 0 or (whole and not 0 < above < below):
        return None
    return whole + above / below


def _decimal(digits: str) -> Fraction:
    return Fraction(Decimal(digits))


def same_number(first: Fraction, second: Fraction) -> bool:
    """Whether two numbers are equal, or are when rounded as Math-Verify does, and 1e-5 apart."""
    if first == second:
        return True
    if abs(first - second) > max(abs(first), abs(second)) / 10**5:
        return False
    return first.denominator * second.denominator > 1 and round(first, 6) == round(second, 6)


def split_base(tokens: Tokens) -> tuple[Tokens, str]:
    """Split a number into its digits and the base that it names: 52_8."""
    digits, _, base = render(tokens).rpartition("_")
    base = base.strip("{}")
    if re.fullmatch(r"(?![A-F])[-0-9A-F.]+", digits) and base.isalnum():
        return tokens[: tokens.index(Token("mark", "_"))], base
    return tokens, ""


# ---- Words


def words_of(tokens: Sequence[Token]) -> str | None:
    r"""Return an answer in words (`\text{East}`, `(B)`), in small letters if not one letter.

    Names of variables are no words: `xy` is a product, so only what is in `\text{}` or has at least
    four letters counts, beside single letters.
    """
    inner = [token for token in flat(tokens) if token.text not in (".", "(", ")")]
    if not inner or any(token.kind not in ("words", "letter", "space") for token in inner):
        return None
    words = " ".join("".join(token.text for token in inner).split())
    if len(words) == 1:
        return words
    has_words = any(token.kind == "words" for token in inner)
    return words.casefold() if has_words or (len(words) > 3 and words.isalpha()) else None


_CHOICE = re.compile(r"\(?(?:\\text\{)?([A-J])\}?[).:](?=.)(?![-+*/^=_,!])")


def choice_of(tokens: Sequence[Token]) -> str | None:
    """Return the letter of an option that its content follows: (B) 5."""
    found = _CHOICE.match(render(tokens))
    return found[1] if found else None


# ---- Units

_SYNONYMS = """
m meter metre, cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre,
in inch inches, ft foot feet, yd yard, mi mile, s sec second, min minute, h hr hour, day, week,
month, year, g gram, kg kilogram, lb pound, oz ounce, l liter litre, ml milliliter millilitre,
gallon, dollar, cent, degree, radian rad
"""
_UNITS = {name: names.split()[0] for names in _SYNONYMS.split(",") for name in names.split()}
_PLAIN_UNITS = re.compile(
    "(?:dollar|cent|degree|radian|unit|hour|minute|second|day|week|month|year|meter|metre|yard|mile|"
    "pound|ounce|gram|liter|litre|gallon|student|way|point|time|hr)s?|feet|foot|inch(?:es)?|people|"
    "cm|mm|km|kg|mph|ft|sec|min|mL"
)
r"""Units that may stand without `\text{}`, after a space."""

_NO_UNIT = re.compile(r"\b(?:and|or|if|for|mod|base|hundred|thousand|[mb]illion|percent|pct)\b")
_BETWEEN_UNITS = frozenset((" ", "/", r"\cdot", r"\times", ".", "^", "-"))
_OF_ANGLES = frozenset((r"\sin", r"\cos", r"\tan", r"\cot", r"\sec", r"\csc"))


def split_unit(tokens: Tokens) -> tuple[Tokens, str]:
    r"""Split an answer into its value and the unit after it, in its shortest name.

    A unit follows a number or a bracket, in `\text{}`, as °, or in plain letters after a space.
    Dollars may come first. The unit is "" if there is none, or if it has no known name.
    """
    if tokens and tokens[0].text in (r"\$", "$"):
        value, unit = split_unit(trimmed(tokens[1:]))
        return value, unit or "dollar"
    if tokens[-1:] == (DEGREE,) and not _OF_ANGLES & {token.text for token in tokens}:
        return trimmed(tokens[:-1]), "degree"
    if plain := _plain_unit(tokens):
        return plain
    start = at = len(tokens)
    while at > 0 and _may_be_of_unit(tokens, at - 1):
        at -= 1
        if tokens[at].kind == "words":
            start = at
    words = " ".join(token.text for token in tokens[start:] if token.kind == "words")
    value = trimmed(tokens[:start])
    is_letter = len(words) == 1 and words != "L" and words not in _UNITS  # 2k, 2M
    if not words or not _takes_unit(value) or is_letter or _NO_UNIT.search(words.casefold()):
        return tokens, ""
    return value, _unit_name(words)


def _takes_unit(value: Tokens) -> bool:
    return bool(value) and value[-1].kind in ("number", "braces", "brackets")


def _may_be_of_unit(tokens: Tokens, at: int) -> bool:
    token = tokens[at]
    if token.kind == "braces":  # the power of a unit
        is_power = bool(re.fullmatch(r"-?\d", render(token.inner)))
        return is_power and at > 0 and tokens[at - 1].text == "^"
    if token.kind == "brackets":
        return all(_may_be_of_unit(token.inner, i) for i in range(len(token.inner)))
    return token.kind == "words" or token.text in _BETWEEN_UNITS


def _plain_unit(tokens: Tokens) -> tuple[Tokens, str] | None:
    at = len(tokens)
    while at > 0 and tokens[at - 1].kind == "letter":
        at -= 1
    name = "".join(token.text for token in tokens[at:])
    if at < 2 or tokens[at - 1] != SPACE or not _PLAIN_UNITS.fullmatch(name):
        return None
    value, qualified = split_unit(trimmed(tokens[:at]))
    return (value, qualified or _unit_name(name)) if _takes_unit(value) else None


def _unit_name(words: str) -> str:
    word = words.casefold()
    return _UNITS.get(word) or _UNITS.get(word.removesuffix("s"), "")


def is_percentage(tokens: Tokens) -> bool:
    """Whether an answer ends in a per cent sign, or says so in words."""
    return bool(tokens) and tokens[-1].text in (r"\%", "percent", "pct")
