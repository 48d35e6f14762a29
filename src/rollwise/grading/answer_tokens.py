r"""The tokens of a final answer: what is left of LaTeX or plain text once looks are taken away.

Type (`\mathbf`), size (`\left`, `\displaystyle`), spacing and delimiters (`$`) say nothing of an
answer and leave no token. Everything else does, so that no two answers become one by mistake.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Kind = Literal["number", "letter", "words", "command", "mark", "space", "row"]


class Token(NamedTuple):
    r"""One token.

    Attributes:
        kind: A `letter` is a variable, `words` are in `\text{}`, a `row` ends one of a matrix.
        text: As it is rendered; of words without the `\text{}`.
    """

    kind: Kind
    text: str


Tokens = tuple[Token, ...]

DEEPEST = 40
"""Braces in braces; what is nested deeper is not read."""


class Unreadable(Exception):
    """Braces are not balanced, or nested too deep."""


SPACE, DEGREE, OPEN, CLOSE = (
    Token("space", " "),
    Token("command", r"\degree"),
    Token("mark", "{"),
    Token("mark", "}"),
)

_CHARACTERS = str.maketrans(
    {
        **{"−": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "√": r"\sqrt "},
        **{"π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≈": r"\approx "},
        **{"∪": r"\cup ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"\degree "},
        **{"½": r"\frac{1}{2}", "²": "^{2}", "³": "^{3}"},
    }
)
_REWRITTEN = (
    (re.compile(r"√\s*([\d.]+)"), r"\\sqrt{\1}"),  # of 15 in √15, and of 1 in \sqrt15
    (re.compile(r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\}|°)"), r"\\degree "),
    (re.compile(r"(?<=\d)\.(?=[/}])"), ""),  # 1./3
    (re.compile(r"(?<![^(\[{,=$])[–—](?=[\d.])"), "-"),  # a dash for a sign, not between numbers
)
_RENAMED = {
    **{r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\lbrace": r"\{"},
    **{r"\rbrace": r"\}", r"\leq": r"\le", r"\geq": r"\ge", r"\leqslant": r"\le"},
    **{r"\geqslant": r"\ge", r"\lt": "<", r"\gt": ">", r"\varnothing": r"\emptyset"},
    **{r"\ast": r"\cdot", r"\to": r"\rightarrow", "%": r"\%", r"\iff": r"\Leftrightarrow"},
}
_NO_TOKEN = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|scriptstyle|limits|bf|bfseries|rm|it|large|Large|LARGE|"
    r"huge|Huge|normalsize|small|[bB]igg?[lr]?|[()\[\]])"
)
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|emph|mbox|hbox|mathrm|operatorname\*?)")
_MATH = re.compile(r"\\(?:mathbf|boldsymbol|bm|mathit|mathsf|mathtt|boxed|fbox|underline)")
_CHANGES_TYPE = re.compile(rf"{_TEXT.pattern}|{_MATH.pattern}|\\(?:text)?color")
_FUNCTIONS = frozenset(("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "arctan"))

_MATH_MODE = re.compile(
    r"""
    (?P<row>\\\\\*?(?:[ ]*\[[-\d. a-z]*\])?)
    |(?P<space>(?:\\[,;:\s]|\\q?quad(?![A-Za-z])|~|\s)+)
    |(?P<nothing>\\!)
    |(?P<command>\\(?:[A-Za-z]+\*?|.)|%)
    |(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    |(?P<letter>[^\W\d_])
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_TEXT_MODE = re.compile(r"(?P<words>[^\W\d_]+(?:[ '’-]+[^\W\d_]+)*)")
_DELIMITED = re.compile(r"\$\$([^$]*)\$\$|(?<!\\)\$([^$]*)(?<!\\)\$|\\\((.*?)\\\)|\\\[(.*?)\\\]")


def tokenize(text: str, commas_group: bool = True) -> Tokens:
    """Read an answer in LaTeX or plain text; `commas_group`: 1,234 is one number.

    Raises:
        Unreadable: Its braces are not balanced, or nested too deep.
    """
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    text = text.translate(_CHARACTERS)
    parts, at = [], 0
    for formula in _DELIMITED.finditer(text):  # words outside of the dollars are no variables
        parts += [_read_text(text[at : formula.start()], 0)]
        parts += [_read_math(formula[formula.lastindex or 0], 0)]
        at = formula.end()
    parts.append((_read_text if at else _read_math)(text[at:], 0))
    return _cleaned([token for part in parts for token in part], commas_group)


def render(tokens: Sequence[Token]) -> str:
    """Write tokens as LaTeX: equal texts for equal tokens, spaces only where they count."""
    written = ""
    for i, (kind, text) in enumerate(tokens):
        if kind == "words":
            text = rf"\text{{{text}}}"
        elif kind == "space":
            around = (tokens[i - 1].kind if i else "", tokens[min(i + 1, len(tokens) - 1)].kind)
            text = " " if around == ("number", "number") else ""
        if text[:1].isalpha() and re.search(r"\\[A-Za-z]+\Z", written):
            text = f" {text}"
        written += text
    return written


def closing(tokens: Sequence[Token], start: int) -> int:
    """Return the index of the brace that closes the one at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i] == OPEN) - (tokens[i] == CLOSE)
        if depth == 0:
            return i
    raise Unreadable


def trimmed(tokens: Sequence[Token]) -> Tokens:
    """Take away the spaces at both ends, and braces around the whole."""
    first, last = 0, len(tokens)
    while first < last and tokens[first] == SPACE:
        first += 1
    while first < last and tokens[last - 1] == SPACE:
        last -= 1
    inner = tuple(tokens[first:last])
    if inner and inner[0] == OPEN and closing(inner, 0) == len(inner) - 1:
        return trimmed(inner[1:-1])
    return inner


def _read_math(text: str, depth: int) -> Iterator[Token]:
    at = 0
    while found := _MATH_MODE.match(text, at):
        kind, at = found.lastgroup, found.end()
        name = _RENAMED.get(found[0], found[0])
        if kind == "space":
            yield SPACE
        elif kind == "nothing":  # the negative space of 1,\\!000
            continue
        elif kind == "row":
            yield Token("row", r"\\")
        elif kind != "command":
            yield Token(kind, name)  # type: ignore[arg-type]
        elif _NO_TOKEN.fullmatch(name):
            at += name in (r"\left", r"\right") and text[at : at + 1] == "."
        elif (end := _argument_end(text, at)) and _CHANGES_TYPE.fullmatch(name):
            inner = text[text.index("{", at) + 1 : end]
            if depth == DEEPEST:
                raise Unreadable
            if _TEXT.fullmatch(name):
                yield from _typed(name, tuple(_read_text(inner, depth + 1)))
            elif _MATH.fullmatch(name):
                yield from _read_math(inner, depth + 1)
            at = end + 1
        else:
            yield Token("mark" if name in "<>" else "command", name)


def _read_text(text: str, depth: int) -> Iterator[Token]:
    r"""Read what is in `\text{}`: letters are words there, not variables."""
    at = 0
    while at < len(text):
        if words := _TEXT_MODE.match(text, at):
            yield Token("words", words[0])
            at = words.end()
        else:
            found = _TEXT_MODE.search(text, at)
            command = re.search(r"\\[A-Za-z]", text[at:])
            end = len(text) if command else found.start() if found else len(text)
            yield from _read_math(text[at:end], depth)
            at = end


def _typed(name: str, inner: Tokens) -> Tokens:
    r"""Read `\mathrm{i}` and `\operatorname{sin}`, which are no words."""
    if len(inner) == 1 and name not in (r"\text", r"\mbox", r"\hbox"):
        if inner[0].text in ("i", "e") and name == r"\mathrm":
            return (Token("letter", inner[0].text),)
        if inner[0].text in _FUNCTIONS:
            return (Token("command", rf"\{inner[0].text}"),)
    return inner


def _argument_end(text: str, at: int) -> int | None:
    """Return the place of the brace that closes the argument of a command that ends at `at`."""
    found = re.compile(r"\s*\{").match(text, at)
    return closing_brace(text, found.end()) if found else None


def closing_brace(text: str, start: int, most: int | None = None) -> int | None:
    r"""Find the brace that closes the one before `start`, within `most` characters.

    `\{` and `\}` are signs, not braces.
    """
    depth, end = 1, len(text) if most is None else min(len(text), start + most)
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start, end):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth == 0:
            return found.start()
    return None


def _cleaned(tokens: list[Token], commas_group: bool) -> Tokens:
    """Give what can be written in several ways one: fractions, powers, roots, grouped digits."""
    done: list[Token] = []
    depth = brackets = i = 0
    while i < len(tokens):
        token = tokens[i]
        depth += (token == OPEN) - (token == CLOSE)
        brackets += (token.text in ("(", "[", r"\{")) - (token.text in (")", "]", r"\}"))
        if not 0 <= depth <= DEEPEST:
            raise Unreadable
        if token.text in _ARGUMENTS:
            done.append(token)
            _brace_arguments(tokens, i + 1, _ARGUMENTS[token.text])
        elif token.kind == "number" and (
            grouped := _grouped(tokens, i, commas_group and not brackets)
        ):
            number, i = grouped[0], grouped[1] - 1
            done.append(number)
        elif token != SPACE or (done and done[-1] != SPACE):
            done.append(token)
        i += 1
    if depth:
        raise Unreadable
    return trimmed(done)


_ARGUMENTS = {r"\frac": 2, r"\sqrt": 1, r"\pmod": 1, "^": 1, "_": 1}


def _brace_arguments(tokens: list[Token], at: int, count: int) -> None:
    r"""Put braces around arguments that have none: `\frac12`, `x^2`, but not 10^33."""
    for _ in range(count):
        while tokens[at : at + 1] == [SPACE]:
            del tokens[at]
        if at >= len(tokens) or tokens[at].text in (*_ARGUMENTS, "}"):
            raise Unreadable
        kind, text = tokens[at]
        if tokens[at] == OPEN:
            at = closing(tokens, at) + 1
        elif kind == "number" and len(text) > 1 and count == 2:
            tokens[at : at + 1] = [OPEN, Token(kind, text[0]), CLOSE, Token(kind, text[1:])]
            at += 3
        elif kind == "letter" or count == 2 or (kind == "number" and len(text) == 1):
            tokens[at : at + 1] = [OPEN, tokens[at], CLOSE]
            at += 3


COMMA = Token("mark", ",")


def _grouped(tokens: list[Token], start: int, commas: bool) -> tuple[Token, int] | None:
    """Read the digits of 1,234 or 1 234, and where they end; None if there are no groups."""
    digits, at = tokens[start].text, start + 1
    if not re.fullmatch(r"[1-9][0-9]{0,2}", digits) or tokens[start - 1 : start] == [COMMA]:
        return None
    separators = [[SPACE], [OPEN, COMMA, CLOSE], *([[COMMA]] if commas else [])]
    while True:
        for separator in separators:
            end = at + len(separator)
            group = tokens[end].text if tokens[at:end] == separator and end < len(tokens) else ""
            if re.fullmatch(r"[0-9]{3}(?:\.[0-9]+)?", group) and "." not in digits:
                digits, at = digits + group, end + 1
                break
        else:
            break
    if at == start + 1 or (
        at < len(tokens) and tokens[at].text == "/" and SPACE in tokens[start:at]
    ):
        return None
    return Token("number", digits), at
