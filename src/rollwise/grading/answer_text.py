r"""What a final answer says, once the formatting of its LaTeX is removed: one text for one answer.

Type (`\mathbf`), size (`\left`, `\displaystyle`), delimiters (`$`) and grouping (`1{,}234`) say
nothing about an answer and are removed. Everything else is kept, so that no two answers become one
by mistake. Signs and brackets are one character each, such as ≤ and ⦃; “words” are in quotes.
"""

import re

DEEPEST = 40
"""The deepest nesting of brackets that is read."""

_SIGNS = {
    **{"≤": r"\le", "≥": r"\ge", "≈": r"\approx", "×": r"\times", "·": r"\cdot", "±": r"\pm"},
    **{"∞": r"\infty", "π": r"\pi", "∪": r"\cup", "∈": r"\in", "∅": r"\emptyset"},
    **{"°": r"\degree", "∘": r"\circ", "%": r"\%", "$": r"\$", "⏎": r"\\"},
    **{"⦃": r"\{", "⦄": r"\}", "⟨": r"\langle", "⟩": r"\rangle"},
    **{"⟦": r"\begin{pmatrix}", "⟧": r"\end{pmatrix}"},
    **{"⟪": r"\begin{vmatrix}", "⟫": r"\end{vmatrix}"},
}
_READ = {name: sign for sign, name in _SIGNS.items() if "{" not in name[2:]} | {
    **{r"\leq": "≤", r"\geq": "≥", r"\leqslant": "≤", r"\geqslant": "≥", r"\lt": "<"},
    **{r"\gt": ">", r"\lbrace": "⦃", r"\rbrace": "⦄", r"\varnothing": "∅", r"\ast": "·"},
    **{r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\iff": r"\Leftrightarrow"},
    **{r"\vee": "“or”", r"\lor": "“or”", r"\wedge": "“and”", r"\land": "“and”"},
    **{r"\to": r"\rightarrow", **dict.fromkeys((r"\!", r"\(", r"\)", r"\[", r"\]"), "")},
    **dict.fromkeys((r"\,", r"\;", r"\:", "\\ ", "\\\n", r"\quad", r"\qquad"), " "),
    **dict.fromkeys((r"\left", r"\right", r"\left.", r"\right.", r"\limits", r"\rm", r"\it"), " "),
    **dict.fromkeys((r"\displaystyle", r"\textstyle", r"\scriptstyle", r"\bf", r"\bfseries"), " "),
    **dict.fromkeys((r"\small", r"\normalsize", r"\large", r"\Large", r"\huge", r"\Huge"), " "),
    **{rf"\{size}{side}": " " for size in ("big", "Big", "bigg", "Bigg") for side in ("", *"lr")},
}
_WRITTEN = str.maketrans({sign: f"{name} " for sign, name in _SIGNS.items()})
_CHARACTERS = str.maketrans(
    {"−": "-", "⋅": "·", "÷": "/", "√": r"\sqrt ", "½": r"\frac{1}{2}", "²": "^{2}", "³": "^{3}"}
    | {"“": '"', "”": '"', "~": " "}
)

_OPENING, _CLOSING = "{([⦃⟨⟦⟪", "})]⦄⟩⟧⟫"
_BRACED = r"[^{}]*+"
for _ in range(8):
    _BRACED = rf"(?:[^{{}}]|\{{{_BRACED}\}})*+"

_ROOT = re.compile(r"√\s*([\d.]+)")  # of 15 in √15, and of 1 in \sqrt15
_FORMULA = re.compile(r"(?<!\\)(?:\$\$?|\\\(|\\\[)(.*?)(?<!\\)(?:\$\$?|\\\)|\\\])")
_COMMAND = re.compile(
    r"\\\\\*?(?: *\[[-\d. a-z]*\])?|\\(?:(?:left|right)\.|[A-Za-z]+\*?|.)", re.DOTALL
)
_WORDS = re.compile(r"[^\W\d_]+(?:[ '’-]+[^\W\d_]+)*")
_TYPE = re.compile(
    r"\\(?:(?:text)?(?P<color>color)|mathbf|boldsymbol|bm|mathit|mathsf|mathtt|boxed|fbox|underline|"
    r"(?P<words>text(?:bf|it|rm|sf|tt|normal)?|emph|mbox|hbox)|mathrm|operatorname\*?)"
    rf"\s*\{{(?P<inner>{_BRACED})\}}"
)
_ENVIRONMENT = re.compile(
    r"\\(begin|end) ?\{(?:(?:[pbB]|small)?matrix|array|([vV])matrix)\}(?:(?<=array\}) ?\{[^{}]*\})?"
)
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:(?: |\{,\}|,)\d{3}(?!\d))+(?:\.\d+)?")


class Unreadable(Exception):
    """Braces are not balanced, or brackets are nested too deep."""


def simplified(text: str, commas_group: bool = True) -> str:
    """Read an answer in LaTeX or plain text; `commas_group`: 1,234 is one number.

    Raises:
        Unreadable: Its braces are not balanced, or its brackets nested too deep.
    """
    text = _ROOT.sub(r"\\sqrt{\1}", text).translate(_CHARACTERS)
    pieces = _FORMULA.split(text)
    if len(pieces) > 1:  # words outside the dollars are not variables
        pieces[::2] = map(_worded, pieces[::2])
    text = _COMMAND.sub(_read, " ".join(pieces))
    _check_brackets(text)
    typed = 1
    while typed:
        text, typed = _TYPE.subn(_typed, text)
    text = _ENVIRONMENT.sub(lambda found: ("⟪⟫" if found[2] else "⟦⟧")[found[1] == "end"], text)
    text = _with_arguments(text)
    if re.search(r"\\(?:begin|end)(?![A-Za-z])", text):
        raise Unreadable
    text = re.sub(r"(^|[=,$(\[⦃⟨]) ?[–—] ?(?=\d)", r"\1-", " ".join(text.split()))
    text = re.sub(r"(?<=\d)\.(?= ?[/}])", "", text)  # 1./3
    return stripped(_GROUPED.sub(lambda found: _joined(found, commas_group), text))


def _worded(text: str) -> str:
    """Mark the words in a text that is not a formula, unless it contains one."""
    is_formula = re.search(r"\\[A-Za-z]|[≤≥≈×·±∞π∪∈∅∘]", text)
    return text if is_formula else _WORDS.sub(r"“\g<0>”", text)


def _read(found: re.Match[str]) -> str:
    command = r"\\" if found[0].startswith(r"\\") else found[0]
    return _READ.get(command, command)


def _check_brackets(text: str) -> None:
    depth = braces = 0
    for char in text:
        depth = max(0, depth + (char in _OPENING) - (char in _CLOSING))
        braces += (char == "{") - (char == "}")
        if depth > DEEPEST or braces < 0:
            raise Unreadable
    if braces:
        raise Unreadable


def _typed(found: re.Match[str]) -> str:
    r"""Read `\text{...}` and its like; `\mathrm{i}` and `\operatorname{sin}` are not words."""
    inner = found["inner"]
    if found["color"]:
        return ""
    if found["words"]:
        return _worded(inner)
    is_upright = found[0].startswith((r"\mathrm", r"\operatorname"))
    if not is_upright or inner in ("i", "e"):
        return inner
    is_function = inner in ("sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "arctan")
    return rf"\{inner} " if is_function else _worded(inner)


def _with_arguments(text: str) -> str:
    r"""Put arguments into braces, as in `\frac12` and `x^2`, and write ^∘ as °."""
    text = re.sub(r"\^\s*(?:\{\s*[°∘]\s*\}|[°∘])", "°", text)
    text = re.sub(r"\{\s*\{([^{}]*)\}\s*\}", r"{\1}", text)
    text = re.sub(r"\\frac\s*([^\W_])", r"\\frac{\1}", text)
    text = re.sub(rf"(\\frac\s*\{{{_BRACED}\}})\s*([^\W_])", r"\1{\2}", text)
    text = re.sub(r"\\(sqrt|pmod|mathbb|mathcal)\s*(\d(?![\d.])|[^\W\d_])", r"\\\1{\2}", text)
    return re.sub(r"([\^_])\s*(\d+(?:\.\d+)?|[^\W\d_])", r"\1{\2}", text)


def _joined(found: re.Match[str], commas_group: bool) -> str:
    """Join the digits of 1,234; a comma in brackets separates values, and 1 234/567 is mixed."""
    before, after = found.string[: found.start()], found.string[found.end() :]
    inside = sum(map(before.count, _OPENING[1:])) > sum(map(before.count, _CLOSING[1:]))
    has_comma = "," in found[0].replace("{,}", "")
    if (has_comma and (inside or not commas_group)) or (" " in found[0] and after[:1] == "/"):
        return found[0]
    return re.sub(r"[ ,{}]", "", found[0])


def tight(text: str) -> str:
    """Take away the spaces that do not count: all but those between digits, and in words."""
    return re.sub(r"(“[^”]*”|\\[A-Za-z]+ (?= *[A-Za-z])|(?<=\d) (?=\d))| ", r"\1", text)


def latex(text: str) -> str:
    """Write what `simplified` returned as LaTeX again."""
    return tight(text.translate(_WRITTEN)).replace("“", r"\text{").replace("”", "}")


def bracketed(text: str) -> tuple[str, str] | None:
    """Return the two brackets around a whole text, and what they hold; None if there are none."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in _OPENING) - (char in _CLOSING)
        if depth <= 0:
            is_whole = i == len(text) - 1 and i > 0
            return (text[0] + char, text[1:-1]) if is_whole else None
    return None


def stripped(text: str) -> str:
    """Take away the spaces at both ends, and braces around the whole."""
    text = text.strip()
    around = bracketed(text)
    return stripped(around[1]) if around and around[0] == "{}" else text


def split(text: str, *separators: str) -> list[str]:
    """Split at separators outside of all brackets; empty parts are left out."""
    parts, depth, start = [], 0, 0
    for found in re.finditer(r"“[^”]*”|.", text):
        depth = max(0, depth + (found[0] in _OPENING) - (found[0] in _CLOSING))
        if depth == 0 and found[0] in separators:
            parts.append(text[start : found.start()])
            start = found.end()
    return [part for each in (*parts, text[start:]) if (part := stripped(each))]
