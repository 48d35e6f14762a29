r"""What a final answer says where that is certain: a number, words, a unit, a base."""

import math
import re
from decimal import Decimal
from fractions import Fraction

from rollwise.grading.answer_text import stripped, tight

# ---- Numbers

_DIGITS = r"(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})"
_NUMBER = re.compile(
    rf"""(?P<sign>[-+]?)[ ]?(?:
    (?:(?P<whole>\d{{1,300}})[ ])?(?P<over>-?{_DIGITS})/(?P<under>-?{_DIGITS})
    |(?P<start>\d{{1,300}}(?:\.\d{{0,300}})?)\.?\\overline\{{(?P<repeated>\d{{1,300}})\}}
    |(?P<factorial>\d{{1,3}})!
    |(?:(?P<digits>{_DIGITS})(?:[eE]|[×·*xX]10\^)|10\^)\{{?\(?(?P<power>[-+]?\d{{1,4}})\)?\}}?
    |(?P<plain>{_DIGITS})
    )""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\frac\{(-?\d{1,300})\}\{(-?\d{1,300})\}")


def number_of(answer: str) -> Fraction | None:
    """Return the exact value of a number in digits, in any notation; None of anything else."""
    found = _NUMBER.fullmatch(_FRACTION.sub(r" \1/\2", tight(answer)).strip())
    if found is None:
        return None
    value = _value_of(found)
    return -value if value is not None and found["sign"] == "-" else value


def _value_of(found: re.Match[str]) -> Fraction | None:
    if found["factorial"]:
        return Fraction(math.factorial(int(found["factorial"])))
    if found["repeated"]:
        shift = 10 ** len(found["start"].partition(".")[2])
        nines = 10 ** len(found["repeated"]) - 1
        return Fraction(Decimal(found["start"])) + Fraction(int(found["repeated"]), shift * nines)
    if not found["over"]:
        digits = Decimal(found["digits"] or found["plain"] or 1)
        return Fraction(digits) * Fraction(10) ** int(found["power"] or 0)
    above, below = Fraction(Decimal(found["over"])), Fraction(Decimal(found["under"]))
    whole = int(found["whole"] or 0)
    if below == 0 or (whole and not 0 < above < below):
        return None
    return whole + above / below


def same_number(first: Fraction, second: Fraction) -> bool:
    """Whether two numbers are equal, or within 1e-5 and equal when rounded as Math-Verify does."""
    if first == second:
        return True
    if abs(first - second) > max(abs(first), abs(second)) / 10**5:
        return False
    return first.denominator * second.denominator > 1 and round(first, 6) == round(second, 6)


def split_base(answer: str) -> tuple[str, str]:
    """Split a number into its digits and the base that it names: 52_8, 52 “base” 8."""
    base = r"(?:_\{|“base”)([0-9A-Za-z]+)\}?"
    found = re.fullmatch(rf"((?![A-F])[-0-9A-F.]+){base}", tight(answer))
    return (found[1], found[2]) if found else (answer, "")


# ---- Words

_LETTERS = r"[^\W\d_]"


def words_of(answer: str) -> str | None:
    r"""Return an answer in words (`\text{East}`, `(B)`), in lower case unless it is one letter.

    Names of variables are not words: `xy` is a product, so apart from single letters, only what is
    in `\text{}` or has at least four letters counts.
    """
    words = re.sub(r"[“”.()]", "", answer).strip()
    if not words or not re.fullmatch(rf"(?:“[^”]*”|{_LETTERS}|[ .()])+", answer):
        return None
    if len(words) == 1:
        return words
    return words.casefold() if "“" in answer or (len(words) > 3 and words.isalpha()) else None


def choice_of(answer: str) -> str | None:
    """Return the letter of an option that is followed by its content: (B) 5."""
    found = re.match(r"\(?“?([A-J])”?[).:](?=.)(?![-+*/^=_,!])", tight(answer))
    return found[1] if found else None


# ---- Units

_SYNONYMS = """
m meter metre, cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre,
in inch inches, ft foot feet, yd yard, mi mile, s sec second, min minute, h hr hour, day, week,
month, year, g gram, kg kilogram, lb pound, oz ounce, l liter litre, ml milliliter millilitre,
gallon, dollar, cent, degree, radian rad
"""
_UNITS = {name: names.split()[0] for names in _SYNONYMS.split(",") for name in names.split()}
_ENDS = r".*[\d)}\]⦄⟩⟧]"  # of what has a unit
_PLAIN_UNIT = re.compile(
    rf"({_ENDS}) ((?:dollar|cent|degree|radian|unit|hour|minute|second|day|week|month|year|meter|"
    "metre|yard|mile|pound|ounce|gram|liter|litre|gallon|student|way|point|time|hr)s?|feet|foot|"
    r"inch(?:es)?|people|cm|mm|km|kg|mph|ft|sec|min|mL)(\^\{-?\d\})?"
)
_UNIT = re.compile(r"“[^”]*”(?:“[^”]*”|[ /·×.()^-]|\^\{-?\d\})*\Z")
CHANGING = (
    r"(?:and\b[^”]*)?\b(?:squared|cubed|factorial|hal(?:f|ves)|thirds?|(?:four|fif|ten)ths?)\b"
)
"""Words after a number that make it another one."""
_NO_UNIT = re.compile(rf"\b(?:and|or|if|for|mod|base|percent|pct)\b|\A{CHANGING}")
_MULTIPLES = {"dozen": "12", "hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}"}
_MULTIPLES |= {"billion": "10^{9}", "trillion": "10^{12}"}
_MULTIPLE = re.compile(rf"(?<=[\d}}]) ?(“?)({'|'.join(_MULTIPLES)})\b ?", re.IGNORECASE)


def split_unit(answer: str) -> tuple[str, str]:
    r"""Split an answer into its value and the unit after it, in its shortest name.

    A unit follows a number or a bracket, in `\text{}`, as °, or in plain letters after a space.
    Dollars may come first. The unit is "" without one, or a known name; millions are a value's.
    """
    answer = _MULTIPLE.sub(lambda found: f"×{_MULTIPLES[found[2].lower()]} {found[1]}", answer)
    answer = stripped(answer.replace("“”", ""))
    if answer.startswith("$"):
        value, unit = split_unit(stripped(answer[1:]))
        return value, unit or "dollar"
    if answer.endswith("°") and not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", answer):
        return stripped(answer[:-1]), "degree"
    if found := _PLAIN_UNIT.fullmatch(answer):
        value, unit = split_unit(stripped(found[1]))
        return value, unit or _unit_name(found[2], found[3] or "")
    found = _UNIT.search(answer)
    words = " ".join(re.findall("“([^”]*)”", found[0])) if found else ""
    is_letter = len(words) == 1 and words != "L" and words not in _UNITS  # 2k, 2M
    if found is None or is_letter or _NO_UNIT.search(words.casefold()):
        return answer, ""
    value = stripped(answer[: found.start()])
    unit = _unit_name(words, "".join(re.findall(r"\^\{.*?\}", found[0])))
    if value.endswith("°"):  # 90° “clockwise”
        return split_unit(value)
    return (value, unit) if re.fullmatch(_ENDS, value) else (answer, "")


def _unit_name(words: str, power: str) -> str:
    word = words.casefold()
    name = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"), "")
    return name and name + power


def split_percent(answer: str) -> tuple[str, bool]:
    """Take away a per cent sign at the end, or the word; say whether there was one."""
    found = re.search(r"(?:%|“(?:percent|pct)”) ?\Z", answer)
    return (stripped(answer[: found.start()]), True) if found else (answer, False)
