r"""The ways in which people write one final answer, brought to one that Math-Verify reads.

A form is here only if it cannot turn a wrong answer into a right one: type (`\mathbf`, `\text`),
spacing, grouping of digits, notation of numbers, marks around the answer, units after a number.
Everything else is mathematics, which is Math-Verify's.
"""

import re
from decimal import Decimal
from fractions import Fraction

from rollwise.grading.final_answers import LONGEST_BOX, closing_brace, final_boxes

# ---- References


def bare_reference(answer: str) -> str:
    r"""Return what a reference says, without what data sets put around it.

    That is the last `\boxed{}` of a whole solution, and the one item of a list (`['$2$']`, as in
    OlympiadBench).
    """
    answer = answer.strip()
    if listed := _LIST_OF_ONE.fullmatch(answer):
        answer = listed[2].strip()
        if "\\" not in answer.replace(r"\\", ""):  # as Python and JSON write a backslash
            answer = answer.replace(r"\\", "\\")
    boxes = final_boxes(answer, 1)
    return boxes[0] if boxes else answer


_LIST_OF_ONE = re.compile(r"""\[\s*(['"])((?:(?!\1\s*,).)*)\1\s*\]""", re.DOTALL)


def values_of(reference: str) -> int:
    """Count the values of a bare reference such as `2, -3`: its commas outside of brackets, + 1."""
    depth = commas = 0
    for i, letter in enumerate(reference[:LONGEST_BOX]):
        depth += (letter in "([{") - (letter in ")]}")
        is_group = bool(_GROUP_OF_DIGITS.match(reference, i))
        commas += letter == "," and depth == 0 and not is_group
    return commas + 1


_GROUP_OF_DIGITS = re.compile(r"(?<=\d),(?:\\!)?\d{3}(?!\d)")

# ---- One form


def tidied(text: str) -> str:
    """Write an answer in the common form; only for texts of at most `LONGEST_BOX` characters."""
    text = _without_delimiters(text.translate(_CHARACTERS).strip())
    text = _GROUPED.sub(lambda found: _SEPARATORS.sub("", found[0]), text)
    text = _unwrapped(_SIZES.sub(" ", text))
    text = _SPACING.sub(" ", text)
    text = _POINT_WITHOUT_DIGITS.sub("", text)
    text = _SCIENTIFIC.sub(_with_power, text)
    return _without_units(_without_marks(text))


_CHARACTERS = str.maketrans(
    {
        **{"−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/"},
        **{"π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≈": r"\approx "},
        **{"∪": r"\cup ", "°": r"^\circ ", "½": r"\frac{1}{2}", "²": "^2", "³": "^3"},
        **{"\u00a0": " ", "\u2009": " ", "\u202f": " ", "√": r"\sqrt ", "\n": " ", "\t": " "},
    }
)

_FORMULA = re.compile(r"\$\$([^$]*)\$\$|\$([^$]*)\$|\\\(([^$]*?)\\\)|\\\[([^$]*?)\\\]")
_BETWEEN = re.compile(r"\s*(?:,|;|and|or|,\s*and)?\s*")


def _without_delimiters(text: str) -> str:
    """Take away the dollars of an answer that is a formula, or several with commas between."""
    outside = _FORMULA.split(text)[:: _FORMULA.groups + 1]
    if not _FORMULA.search(text) or not all(map(_BETWEEN.fullmatch, (*outside[:-1], ""))):
        return text
    if not _TRAILING.fullmatch(outside[-1]):
        return text
    return _FORMULA.sub(lambda found: next(filter(None, found.groups()), ""), text).strip()


_TRAILING = re.compile(r"[\s.,;:]*")

_SEPARATOR = r"(?:\\[,;:! ]|\{,\}|,\\!|~|\{ \})"
_SEPARATORS = re.compile(_SEPARATOR)
_GROUPED = re.compile(rf"(?<![\d.,])[1-9]\d{{0,2}}(?:{_SEPARATOR}\d{{3}})+(?!\d)")
_SPACING = re.compile(r"(?:\\[,;:! ]|\\q?quad\b|~|\s)+")
_SIZES = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|bf|bfseries|rm|it|large|Large|LARGE|huge|Huge|"
    r"normalsize|small|bigl?|Bigl?|bigr|Bigr|color\s*\{\w*\}|textcolor\s*\{\w*\})(?![A-Za-z])"
)
_POINT_WITHOUT_DIGITS = re.compile(r"(?<=\d)\.(?=\s*[/}])")

_TYPE = re.compile(
    r"\\(mathbf|boldsymbol|bm|mathrm|mathit|mathsf|mathtt|text|textbf|textit|textrm|textsf|texttt|"
    r"textnormal|emph|mbox|hbox|fbox|boxed|underline|operatorname\*?)\s*\{"
)
_WORD = re.compile(r"\s*[^\W\d_][^\d\\{}$=<>]+")
_NUMBER_AND_WORD = re.compile(r"\s*([-+]?[\d.,]*\d)\s*([^\W\d_][^\d\\{}$=<>]*)")


def _unwrapped(text: str) -> str:
    r"""Take away commands that change the type of what they enclose; words stay in `\text{}`."""
    parts, at = [], 0
    while found := _TYPE.search(text, at):
        end = closing_brace(text, found.end())
        if end is None:
            break
        inner = _unwrapped(text[found.end() : end])
        if both := _NUMBER_AND_WORD.fullmatch(inner):  # \text{5 cm}
            inner = rf"{both[1]}\text{{ {both[2]}}}"
        elif _WORD.fullmatch(inner):
            inner = rf"\text{{{inner}}}"
        elif found[1] in ("mathrm", "operatorname") and inner.strip("~ ").isalpha():
            inner = rf"\mathrm{{{inner}}}"
        parts += [text[at : found.start()], inner]
        at = end + 1
    return "".join([*parts, text[at:]])


# ---- Numbers

_TIMES = r"(?:\\times|\\cdot|\\ast|\*|[xX])"
_SCIENTIFIC = re.compile(
    r"(?<![\w.\\])(?P<digits>\d+(?:\.\d*)?|\.\d+)\s*(?:"
    r"[eE]\s?(?P<e>[+-]?\d{1,4})(?!\w)|"
    rf"{_TIMES}\s*10\s*\^\s*(?:\{{\s*(?P<braces>[+-]?\s?\d{{1,4}})\s*\}}|"
    r"\(\s*(?P<brackets>[+-]?\d{1,4})\s*\)|(?P<power>[+-]?\d{1,4})(?!\w)))"
)
_POWER_OF_TEN = re.compile(r"(?P<sign>[+-]?)\s*10\s*\^\s*(?:\{\s*([+-]?\d{1,4})\s*\}|(\d))")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<digits>\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})"
    r"(?:\s*\\cdot 10\^\{(?P<power>[+-]?\d{1,4})\})?"
)


def _with_power(found: re.Match[str]) -> str:
    power = found["e"] or found["braces"] or found["brackets"] or found["power"]
    return rf"{found['digits']} \cdot 10^{{{int(power.replace(' ', ''))}}}"


def number_of(text: str) -> Fraction | None:
    """Return the value of a tidied answer that is a number in digits; None for any other."""
    if found := _POWER_OF_TEN.fullmatch(text):
        value = Fraction(10) ** int(found[2] or found[3])
    elif found := _NUMBER.fullmatch(text):
        value = Fraction(Decimal(found["digits"])) * Fraction(10) ** int(found["power"] or 0)
    else:
        return None
    return -value if found["sign"] == "-" else value


def same_number(first: Fraction, second: Fraction) -> bool:
    """Whether two numbers are equal, or are when rounded as Math-Verify does, and 1e-5 apart."""
    if first == second:
        return True
    if abs(first - second) > max(abs(first), abs(second)) / 10**5:
        return False
    return first.denominator * second.denominator > 1 and round(first, 6) == round(second, 6)


# ---- Marks and units

_BEFORE = re.compile(
    r"(?:\s|=|\\approx|\\simeq|\\sim|\\cong|\\doteq|\\therefore|\\implies|\\Rightarrow|"
    r"\\text\{\s*(?:about|approximately|approx\.?)\s*\})+(?![A-Za-z])"
)
_AFTER = re.compile(r"(?:[\s.,;:!]|\\checkmark|\\blacksquare|\\square|\\qed)+\Z")


def _without_marks(text: str) -> str:
    """Take away what stands before and after an answer: "=", "about", a full stop."""
    if found := _BEFORE.match(text):
        text = text[found.end() :]
    text = _AFTER.sub("", text[-LONGEST_BOX:])
    if text.startswith(r"\text{") and text.endswith("}"):
        text = re.sub(r"[\s.]+\}\Z", "}", text)
    return text if text.count("{") or not text.endswith("}") else text.rstrip("}")


_UNIT = r"\\(?:text|mathrm)\{[^{}\d]*\}(?:\s*\^\s*(?:\{\s*-?\d\s*\}|-?\d))?"
_UNITS = re.compile(rf"(?<=[\d}})])\s*(?:{_UNIT}(?:\s|/|\\cdot|\\times|\()*+)+\)?\Z")
_NAMES = (
    "dollars?|cents?|degrees?|radians?|percent|units?|square units?|cubic units?|hours?|minutes?|"
    "seconds?|days?|weeks?|months?|years?|meters?|metres?|feet|foot|inches|inch|yards?|miles?|"
    "pounds?|ounces?|grams?|liters?|litres?|gallons?|people|students?|ways|points?|times|"
    "cm|mm|km|kg|mph|ft|sec|min|hrs?|mL"
)
_PLAIN_UNITS = re.compile(rf"(?<=[\d}})])\s+(?!percent)(?:{_NAMES})\Z")
_QUESTIONED = re.compile(r"\\text\{\s*(?:and|or|if|for|mod|base|hundred|thousand|million|billion)")


def _without_units(text: str) -> str:
    """Take away units after a number, or an expression that ends in a bracket."""
    text = _PLAIN_UNITS.sub("", text)
    found = _UNITS.search(text)
    if found and found.start() and not _QUESTIONED.search(text, found.start()):
        if "percent" in found[0]:
            return text
        text = text[: found.start()]
    return text.strip()


# ---- Words

_TEXT = re.compile(r"(?:\\(?:text|mathrm)\{)?\s*\(?([^\W\d_](?:[^\W\d_]|[ '-])*)\)?\s*\}?")


def words_of(text: str) -> str | None:
    r"""Return a tidied answer in words (`\text{East}`, `(B)`), in small letters if not one letter.

    Names of variables are no words: `xy` is a product, so only what is in `\text{}` or has at least
    four letters counts, beside single letters.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    words = found[1].strip()
    if len(words) == 1:
        return words
    return words.casefold() if "\\" in text or len(words) > 3 else None
