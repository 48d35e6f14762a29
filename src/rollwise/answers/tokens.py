r"""The tokens of an answer: LaTeX, Unicode and plain text in one form.

Layout says nothing about an answer and is dropped: size (`\left`, `\displaystyle`), type
(`\mathbf`), delimiters (`$`), grouping (`1{,}234`). All else is kept, so that no two answers
become one by mistake.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from rollwise.answers import vocabulary
from rollwise.answers.nodes import Unreadable
from rollwise.answers.vocabulary import ALIASES, CONNECTIVES, FUNCTIONS

LONGEST, DEEPEST = 1000, 40
"""Characters of an answer that is read, and its nesting of brackets."""


class Token(NamedTuple):
    """A part of an answer: its kind, its canonical form, and whether white space comes before it.

    Kinds are `number`, `name` (of a variable or function), `word` (of a text), `letters` (a product
    or a word: `abc`), `unit`, `open`, `close`, and `sign` for all else.
    """

    kind: str
    text: str
    spaced: bool = False

    @property
    def word(self) -> str:
        """The word that this is, in lower case; "" of anything else."""
        return self.text.lower() if self.kind in ("word", "letters") else ""

    @property
    def depth(self) -> int:
        """By how much it nests what follows."""
        return (self.kind == "open") - (self.kind == "close")


Tokens = Sequence[Token]


def _normal(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0].translate(vocabulary.CHARACTERS))


_CHARACTERS = (
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: f"^{{{_normal(m)}}}"),
    (r"[₀₁₂₃₄₅₆₇₈₉ₙ]+", lambda m: f"_{{{_normal(m)}}}"),
    (r"[¼-¾⅐-⅞]", lambda m: f"\\frac{{{_normal(m)}}}".replace("⁄", "}{")),
    (r".+", _normal),
)
_ENVIRONMENT = r" ?\{(?:(?:[pbB]|small)?matrix|array)\}(?: ?\{[lcr| ]*\})?"
_TEXT = rf"\\(?:{vocabulary.TEXTS})\*?\s*"
_LATEX = (
    (r"\\\\(?=(?:[dt]?frac|left|right|sqrt|text|pi|le|ge|infty|cup|in|cdot|times)\b)", r"\\"),
    (r"\\begin" + _ENVIRONMENT, "⟦"),
    (r"\\end" + _ENVIRONMENT, "⟧"),
    (r"\\(begin|end) ?\{[vV]matrix\}", lambda m: "⟪⟫"[m[1] == "end"]),
    (r"\\\\\*?(?: *\[[-\d. a-z]*\])?", "⏎"),
    (r"\\(?:left|right) ?\.", ""),
    (rf"\\(?:{vocabulary.DROPPED_WITH_ARGUMENT})\s*\{{[^{{}}]*\}}", ""),
    (rf"{_TEXT}\{{\s*({'|'.join(FUNCTIONS)})\s*\}}", r"\\\1 "),
    (r"\\(?:mathrm|operatorname)\s*\{\s*([ied])\s*\}(?![+-]?\d)", r"{\1}"),
    (
        rf"(?!\\mathrm\{{[eE]\}}[+-]?\d){_TEXT}\{{((?:[^{{}}$\\]|\\(?:Omega|mu)\b|\\[^A-Za-z])*)\}}",
        "\x02\\1\x03",
    ),
    (r"\^\s*(?:\{\s*(?:\\circ|°)\s*\}|\\circ(?![A-Za-z])|°)", "°"),
    (r"\\mathbb\s*(?:\{\s*([A-Z])\s*\}|([A-Z]))", r"\\\1\2 "),
    (r"(\A|[(\[{,=$])\s*–", r"\1-"),
    (r"\^(\d{1,4})/_(\d{1,4})", r"\\frac{\1}{\2}"),
    (
        r"(?:\{\})?[_^](?:\{(\d{1,4})\}|(\d))\s*C\s*_(?:\{(\d{1,4})\}|(\d))",
        r"\\binom{\1\2}{\3\4}",  # ⁵C₂
    ),
)
_SUBSTITUTIONS = [(re.compile(pattern), new) for pattern, new in (*_CHARACTERS, *_LATEX)]


def _number_pattern(separator: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?=\.?[0-9])(?P<whole>[1-9]\d{{0,2}}(?:(?:{separator})\d{{3}}(?!\d))+|\d*)"
        r"(?:\.(?P<places>\d+)?(?:\\overline ?\{(?P<repeated>\d+)\}|\\dot ?\{?(?P<dotted>\d)\}?)?)?"
        r"(?:(?:[eE]|\\mathrm\{[eE]\})(?P<power>[+-]?\d{1,5})(?![\dA-Za-z.]))?"
    )


_GROUPING = r",\\!\s*|\s*\{\s*,\s*\}\s*|\\[,;! ]|[ ](?=\d{3}(?!\d|/))"
_NUMBER, _NUMBER_IN_LIST = _number_pattern(f"{_GROUPING}|,"), _number_pattern(_GROUPING)
_SPACE = re.compile(r"(?:[\s~]|\\(?:[,;: \n>~]|(?:q?quad|enspace|thinspace)(?![A-Za-z])))+")
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|[^\W\d_]+|\*\*|[<>!]=|=[<>]|->|\.{3}|!!|.", re.DOTALL)


def tokens_of(text: str, grouping: bool = True) -> list[Token]:
    """Return the tokens of an answer; `grouping`: 1,234 is one number."""
    if len(text) > LONGEST:
        raise Unreadable("too long")
    for pattern, replacement in _SUBSTITUTIONS[len(_CHARACTERS) * text.isascii() :]:
        text = pattern.sub(replacement, text)
    tokens: list[Token] = []
    brackets: list[str] = []
    start, spaced, in_text = 0, False, False
    while start < len(text):
        made = None
        is_list = not grouping or "(" in brackets or "[" in brackets or "⦃" in brackets
        if found := _SPACE.match(text, start):
            spaced = True
        elif found := (_NUMBER_IN_LIST if is_list else _NUMBER).match(text, start):
            made = "number", _canonical(found)
        elif found := _TOKEN.match(text, start):
            made = _read_part(found[0], in_text)
        assert found is not None
        start = found.end()
        if found[0] in ("\x02", "\x03"):
            in_text = found[0] == "\x02"
        elif made:
            _nest(brackets, *made)
            tokens.append(Token(*made, spaced))
            spaced = False
    if brackets:
        raise Unreadable("brackets are not balanced")
    return tokens


def _nest(brackets: list[str], kind: str, text: str) -> None:
    """Open or close a bracket; `[1, 2)` matches, but a brace matches only its like."""
    if kind == "open":
        brackets.append(text)
        if len(brackets) > DEEPEST:
            raise Unreadable("nested too deep")
    elif kind == "close":
        opening = brackets.pop() if brackets else ""
        if text != vocabulary.CLOSING.get(opening) and {opening, text} - set("([)]"):
            raise Unreadable("brackets are not balanced")


_KINDS = (
    *(("open", vocabulary.OPENING), ("close", vocabulary.ENDING)),
    *(("sign", vocabulary.SIGNS), ("unit", vocabulary.CURRENCY_SIGNS)),
)


def _read_part(part: str, in_text: bool) -> tuple[str, str] | None:
    """Return the kind and canonical form of what is neither a number nor white space."""
    bare = part.removeprefix("\\")
    name, is_command = ALIASES.get(bare, bare), bare != part
    if (name if is_command else part.lower()) in CONNECTIVES:
        return "word", name.lower()
    if part in ("infinity", "infty", "inf"):
        return "sign", "∞"
    if part.isalpha():
        if in_text or not part.isascii():
            return "word", part
        if name in FUNCTIONS or name in vocabulary.GREEK.values():
            return "name", f"\\{name}"
        return "name" if len(part) == 1 else "letters", part
    part = f"\\{name}" if is_command else part
    for kind, table in _KINDS:
        if part in table:
            return kind, table[part]
    if part in '$"' or (is_command and name in vocabulary.DROPPED):
        return None
    return "name" if is_command else "sign", part


def _canonical(found: re.Match[str]) -> str:
    """Write a number as `1234.5`, `1.2e-3`, `0.1(6)` with the digits that repeat."""
    whole, places = re.sub(r"\D", "", found["whole"]) or "0", found["places"] or ""
    repeated = found["repeated"] or found["dotted"]
    point = "." if places or repeated else ""
    power = f"e{int(found['power'])}" if found["power"] else ""
    return whole + point + places + (f"({repeated})" if repeated else "") + power


# ---- Tokens taken apart


def closing(tokens: Tokens) -> int:
    """Return where the bracket that tokens begin with is closed; -1 if it is not."""
    depth = 0
    for i, token in enumerate(tokens):
        depth += token.depth
        if depth == 0:
            return i
    return -1


def split(tokens: Tokens, *separators: str) -> tuple[list[Tokens], list[str]]:
    """Split at separators outside of all brackets; return the parts and the separators."""
    parts: list[Tokens] = []
    found: list[str] = []
    depth = start = 0
    for i, token in enumerate(tokens):
        depth += token.depth
        if depth == 0 and token.kind in ("sign", "word") and token.text in separators:
            parts.append(tokens[start:i])
            found.append(token.text)
            start = i + 1
    return [*parts, tokens[start:]], found


def plain(tokens: Tokens) -> str:
    """Return the text of tokens, without braces."""
    return "".join(" " * t.spaced + t.text for t in tokens if t.text not in "{}").strip()


def key(tokens: Tokens) -> str:
    """Return a text that is the same for the same tokens, however they are spaced."""
    texts = (t.text.casefold() if t.word else t.text for t in tokens)
    return " ".join(text for text in texts if text not in "{}")
