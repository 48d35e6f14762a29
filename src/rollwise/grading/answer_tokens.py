r"""The tokens of a final answer, nested by its brackets, once looks are taken away.

Type (`\mathbf`), size (`\left`, `\displaystyle`), spacing and delimiters (`$`) say nothing of an
answer and leave no token. Everything else does, so that no two answers become one by mistake.
"""

import itertools
import re
from collections.abc import Container, Iterator, Sequence
from typing import Literal, NamedTuple

Leaf = Literal["number", "letter", "words", "command", "mark", "space", "row"]
Kind = Leaf | Literal["braces", "brackets", "matrix"]


class Token(NamedTuple):
    r"""One token.

    Attributes:
        kind: A `letter` is a variable, `words` are in `\text{}`, a `row` ends one of a matrix.
        text: As it is rendered; of words without the `\text{}`, of brackets both, of a matrix the
            name of its environment.
        inner: What braces, brackets or a matrix hold.
    """

    kind: Kind
    text: str
    inner: "tuple[Token, ...]" = ()


Tokens = tuple[Token, ...]

DEEPEST = 40
"""Brackets in brackets; what is nested deeper is not read."""


class Unreadable(Exception):
    """Braces are not balanced, or brackets are nested too deep."""


SPACE, COMMA = Token("space", " "), Token("mark", ",")
DEGREE = Token("command", r"\degree")
_CIRCLES = frozenset((DEGREE, Token("command", r"\circ")))

OPENING = frozenset(("(", "[", r"\{", r"\langle"))
_CLOSING = frozenset((")", "]", r"\}", r"\rangle"))
_AROUND = frozenset(("}", r"\end"))

_CHARACTERS = str.maketrans(
    {
        **{"−": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "√": r"\sqrt "},
        **{"π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≈": r"\approx "},
        **{"∪": r"\cup ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"\degree "},
        **{"½": r"\frac{1}{2}", "²": "^{2}", "³": "^{3}"},
    }
)
_ROOT = re.compile(r"√\s*([\d.]+)")  # of 15 in √15, and of 1 in \sqrt15
_RENAMED = {
    **{r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\lbrace": r"\{"},
    **{r"\rbrace": r"\}", r"\leq": r"\le", r"\geq": r"\ge", r"\leqslant": r"\le"},
    **{r"\geqslant": r"\ge", r"\lt": "<", r"\gt": ">", r"\varnothing": r"\emptyset"},
    **{r"\ast": r"\cdot", r"\to": r"\rightarrow", "%": r"\%", r"\iff": r"\Leftrightarrow"},
}
_NO_TOKEN = re.compile(
    r"\\(?:(?:left|right|displaystyle|textstyle|scriptstyle|limits|bf|bfseries|rm|it|large|Large|"
    r"LARGE|huge|Huge|normalsize|small|[bB]igg?[lr]?)(?![A-Za-z])|[()\[\]!])"
)
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|emph|mbox|hbox|mathrm|operatorname\*?)")
_MATH = re.compile(r"\\(?:mathbf|boldsymbol|bm|mathit|mathsf|mathtt|boxed|fbox|underline)")
_COLOR = re.compile(r"\\(?:text)?color")
_FUNCTIONS = frozenset(("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "arctan"))

_LEXEME = re.compile(
    r"""
    (?P<row>\\\\\*?(?:[ ]*\[[-\d. a-z]*\])?)
    |(?P<space>(?:\\[,;:\s]|\\q?quad(?![A-Za-z])|~|\s)+)
    |(?P<command>\\(?:[A-Za-z]+\*?|.)|%)
    |(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    |(?P<letter>[^\W\d_])
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = re.compile(r"[^\W\d_]+(?:[ '’-]+[^\W\d_]+)*")
_BEFORE_COMMAND = re.compile(r"[^}]*\\[A-Za-z]")  # then a text holds a formula
_BRACE = re.compile(r"\s*\{")
_LOOKS = re.compile(rf"(?:\s|\\(?:left|right)\.|{_NO_TOKEN.pattern})*")
_DELIMITED = re.compile(
    r"\$\$([^$]*)\$\$|(?<!\\)\$([^$]*)(?<!\\)\$|(?<!\\)\\\((.*?)\\\)|(?<!\\)\\\[(.*?)\\\]"
)

_ARGUMENTS = {r"\frac": 2, r"\sqrt": 1, r"\pmod": 1, "^": 1, "_": 1}
_DIGIT = re.compile(r"(?P<number>\d)|(?P<letter>[^\W\d_])|(?P<command>\\[A-Za-z]+)")
_ALONE = re.compile(r"(?P<number>\d)(?![\d.])|(?P<letter>[^\W\d_])")
_NUMBER = re.compile(r"(?P<number>\d+(?:\.\d+)?)|(?P<letter>[^\W\d_])")
_BARE = {r"\frac": _DIGIT, r"\sqrt": _ALONE, r"\pmod": _ALONE, "^": _NUMBER, "_": _NUMBER}
"""What is an argument without braces."""


def tokenize(text: str, commas_group: bool = True) -> Tokens:
    """Read an answer in LaTeX or plain text; `commas_group`: 1,234 is one number.

    Raises:
        Unreadable: Its braces are not balanced, or its brackets nested too deep.
    """
    text = _ROOT.sub(r"\\sqrt{\1}", text).translate(_CHARACTERS)
    tokens, at = list[Token](), 0
    for formula in _DELIMITED.finditer(text):  # words outside of the dollars are no variables
        tokens += _Reader(text[at : formula.start()]).read(words=True)[0]
        tokens += _Reader(formula[formula.lastindex or 0]).read()[0]
        at = formula.end()
    tokens += _Reader(text[at:]).read(words=at > 0)[0]
    return _cleaned(tokens, commas_group)


def render(tokens: Sequence[Token]) -> str:
    """Write tokens as LaTeX: equal texts for equal tokens, spaces only where they count."""
    written, every = "", [*flat(tokens)]
    for i, (kind, text, _) in enumerate(every):
        if kind == "words":
            text = rf"\text{{{text}}}"
        elif kind == "space":
            around = [each.kind for each in every[max(0, i - 1) : i + 2]]
            text = " " if around == ["number", "space", "number"] else ""
        if text[:1].isalpha() and re.search(r"\\[A-Za-z]+\Z", written):
            text = f" {text}"
        written += text
    return written


def flat(tokens: Sequence[Token]) -> Iterator[Token]:
    """List tokens without nesting; brackets become marks."""
    for token in tokens:
        if token.kind == "matrix":
            around = [rf"\begin{{{token.text}}}", rf"\end{{{token.text}}}"]
        elif token.kind in ("braces", "brackets"):
            around = re.findall(r"\\[a-z]+|\\?.", token.text)
        else:
            yield token
            continue
        yield Token("mark", around[0])
        yield from flat(token.inner)
        yield Token("mark", around[1])


def trimmed(tokens: Sequence[Token]) -> Tokens:
    """Take away the spaces at both ends, and braces around the whole."""
    first, last = 0, len(tokens)
    while first < last and tokens[first] == SPACE:
        first += 1
    while first < last and tokens[last - 1] == SPACE:
        last -= 1
    inner = tuple(tokens[first:last])
    return trimmed(inner[0].inner) if len(inner) == 1 and inner[0].kind == "braces" else inner


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def read(self, until: Container[str] = (), words: bool = False) -> tuple[list[Token], str]:
        """Read to the end, or until one of some texts, and return that too.

        `words`: letters are words here, not variables.
        """
        tokens: list[Token] = []
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable
        closer = ""
        while not closer and self._at < len(self._text):
            if words and (found := _WORDS.match(self._text, self._at)):
                tokens.append(Token("words", found[0]))
                self._at = found.end()
                continue
            words = words and not _BEFORE_COMMAND.match(self._text, self._at)
            kind, text = self._lexeme()
            if text in until:
                closer = text
            else:
                tokens += self._nested(kind, text, words)
        self._depth -= 1
        return tokens, closer

    def _lexeme(self) -> tuple[Leaf, str]:
        found = _LEXEME.match(self._text, self._at)
        assert found is not None  # one matches any character
        self._at = found.end()
        text = _RENAMED.get(found[0], found[0])
        return ("mark" if text in "<>" else found.lastgroup), text  # type: ignore[return-value]

    def _nested(self, kind: Leaf, text: str, words: bool) -> list[Token]:
        """Return the tokens of a lexeme, and of what it opens or takes."""
        if text == "{":
            return [self._braced(words)]
        if text in OPENING:
            inner, closer = self.read(_CLOSING | _AROUND, words)
            if closer in _CLOSING:
                return [Token("brackets", text + closer, tuple(inner))]
            self._at -= len(closer)
            return [Token(kind, text), *inner]
        if text in ("}", r"\end"):
            raise Unreadable
        if text == r"\begin":
            return [self._environment()]
        if kind == "command" and _NO_TOKEN.fullmatch(text):
            self._at += text in (r"\left", r"\right") and self._text[self._at : self._at + 1] == "."
            return []
        if kind == "command" and _BRACE.match(self._text, self._at):
            if _TEXT.fullmatch(text):
                return _typed(text, self._argument(words=True))
            if _MATH.fullmatch(text) or _COLOR.fullmatch(text):
                inner = self._argument()
                return inner if _MATH.fullmatch(text) else []
        if kind == "space":
            return [SPACE]
        if kind == "row":
            return [Token("row", r"\\")]
        arguments = (self._argument_of(text) for _ in range(_ARGUMENTS.get(text, 0)))
        return [Token(kind, text), *itertools.chain.from_iterable(arguments)]

    def _braced(self, words: bool = False) -> Token:
        """Read what is in braces, of which the first has been read."""
        inner, closer = self.read("}", words)
        if not closer:
            raise Unreadable
        return Token("braces", "{}", tuple(inner))

    def _argument(self, words: bool = False) -> list[Token]:
        """Read an argument in braces."""
        found = _BRACE.match(self._text, self._at)
        if found is None:
            raise Unreadable
        self._at = found.end()
        return [*self._braced(words).inner]

    def _argument_of(self, command: str) -> list[Token]:
        r"""Read an argument, with braces or without: `\frac12`, `x^2`; [] if it is neither."""
        looks = _LOOKS.match(self._text, self._at)
        begin = looks.end() if looks else self._at
        if _BRACE.match(self._text, begin):
            self._at = begin
            return [Token("braces", "{}", tuple(self._argument()))]
        found = _BARE[command].match(self._text, begin)
        if found and found[0] not in _ARGUMENTS:
            self._at = found.end()
            one = Token(found.lastgroup, found[0])  # type: ignore[arg-type]
            return [Token("braces", "{}", (one,))]
        follows = _LEXEME.match(self._text, begin)
        if follows is None or follows[0] in (*_ARGUMENTS, "}") or command == r"\frac":
            raise Unreadable
        return []

    def _environment(self) -> Token:
        name = render(self._argument())
        inner, _ = self.read((r"\end",))
        self._argument()
        if name == "array" and inner and inner[0].kind == "braces":
            del inner[0]
        return Token("matrix", name, tuple(inner))


def _typed(name: str, inner: list[Token]) -> list[Token]:
    r"""Read `\mathrm{i}` and `\operatorname{sin}`, which are no words."""
    if len(inner) == 1 and name not in (r"\text", r"\mbox", r"\hbox"):
        if inner[0].text in ("i", "e") and name == r"\mathrm":
            return [Token("letter", inner[0].text)]
        if inner[0].text in _FUNCTIONS:
            return [Token("command", rf"\{inner[0].text}")]
    return inner


def _cleaned(tokens: Sequence[Token], commas_group: bool, in_braces: bool = False) -> Tokens:
    r"""Join grouped digits and spaces, and read what says the same as another token.

    Such as the 2 of `x^\mathbf{2}`, which is an argument once looks are gone.
    """
    tokens, done = _joined(tokens), list[Token]()
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.kind == "number":
            token, i = _grouped(tokens, i, commas_group)
        elif token.inner:
            group = commas_group and token.kind != "brackets"
            inner = _cleaned(token.inner, group, token.kind == "braces")
            token = token._replace(inner=inner)
        i += 1
        after = next((each for each in tokens[i:] if each != SPACE), None)
        _add(token, done, after, in_braces)
    return trimmed(done)


def _joined(tokens: Sequence[Token]) -> list[Token]:
    r"""Join the digits of one number, such as `12\!345`, which looks had parted."""
    joined: list[Token] = []
    for token in tokens:
        if token.kind == "number" and joined and joined[-1].kind == "number":
            both = joined[-1].text + token.text
            if _NUMBER.fullmatch(both):
                joined[-1] = Token("number", both)
                continue
        joined.append(token)
    return joined


def _add(token: Token, done: list[Token], after: Token | None, in_braces: bool) -> None:
    before = done[-1] if done else SPACE
    argument = _BARE.get(before.text)
    if before.text == "^" and (token in _CIRCLES or (set(token.inner) <= _CIRCLES and token.inner)):
        done[-1] = DEGREE
    elif argument and token.kind in ("number", "letter") and argument.fullmatch(token.text):
        done.append(Token("braces", "{}", (token,)))
    elif token.text in ("–", "—") and after and after.kind == "number" and _begins(done):
        done.append(Token("mark", "-"))
    elif token == SPACE and (argument or before == SPACE):
        pass
    elif (
        token.text == "."
        and before.kind == "number"
        and (after.text == "/" if after else in_braces)
    ):
        pass  # 1./3
    else:
        done.append(token)


def _begins(done: Sequence[Token]) -> bool:
    """Whether a value begins here, so that a dash is its sign."""
    before = [token for token in done[-2:] if token != SPACE]
    return not before or before[-1].text in (*OPENING, ",", "=", "$")


_BRACED_COMMA = Token("braces", "{}", (COMMA,))


def _grouped(tokens: Sequence[Token], start: int, commas: bool) -> tuple[Token, int]:
    """Read 1,234 or 1 234 as one number; return it, and the index of its last token."""
    digits, end = tokens[start].text, start
    separators = (SPACE, _BRACED_COMMA, *([COMMA] if commas else []))
    if not re.fullmatch(r"[1-9][0-9]{0,2}", digits) or (start and tokens[start - 1] == COMMA):
        return tokens[start], start
    while end + 2 < len(tokens) and tokens[end + 1] in separators and "." not in digits:
        if not re.fullmatch(r"[0-9]{3}(?:\.[0-9]+)?", tokens[end + 2].text):
            break
        digits, end = digits + tokens[end + 2].text, end + 2
    is_mixed = SPACE in tokens[start:end] and [t.text for t in tokens[end + 1 : end + 2]] == ["/"]
    return (tokens[start], start) if is_mixed else (Token("number", digits), end)
