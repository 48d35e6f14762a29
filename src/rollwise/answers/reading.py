"""Step two: what kind of answer a final answer is, and its parts."""

import itertools
import re
from collections.abc import Callable, Iterable

from rollwise.answers import units, vocabulary
from rollwise.answers.expressions import parse
from rollwise.answers.nodes import COMPOUNDS, INFINITY, LISTS, REALS, SET, Node, Unreadable, minus
from rollwise.answers.tokens import Token, Tokens, closing, key, split, tokens_of


def read(text: str, grouping: bool = True) -> Node:
    r"""Return what an answer says; `grouping`: 1,234 is one number. `\{5\}` is 5."""
    node = _read(tokens_of(text, grouping))
    is_one = node.kind == SET and len(node.parts) == 1 and node.parts[0].kind != "words"
    return node.parts[0] if is_one else node  # words may be the empty set


_OPTION = re.compile(
    r"\s*(?:(?:option|choice|answer|statement)\b[\s:]*\(?\s*([A-Ja-j])\b|\(\s*([A-Ja-j])\s*\)|"
    r"([A-J])(?=\s*(?:[).:]|[-–—]\s*[A-Za-z]{2}|$)))\s*[).:]*\s*[-–—]?\s*"
    r"(?!\s*(?:[,+*/^=_&!|;<>-]|and\b|or\b))(.*)",
    re.DOTALL | re.IGNORECASE,
)
_FORMATTING = re.compile(
    r"\\(?:text\w*|mathrm|mathbf|mathit|boldsymbol|bm|quad|qquad)\b|\\[ ,;]|[{}$*]"
)


def option_of(text: str) -> tuple[str, str] | None:
    """Return the letter of an option and what follows it: `(B) 5`; None of anything else."""
    found = _OPTION.fullmatch(_FORMATTING.sub(" ", text)) if len(text) <= 300 else None
    if found is None or (found[3] and found[3].islower()):
        return None
    return (found[1] or found[2] or found[3]).upper(), found[4].strip()


def _read(tokens: Tokens) -> Node:
    tokens = _trimmed(tokens)
    if not tokens:
        raise Unreadable("empty")
    for reader in _READERS:
        try:
            node = reader(tokens)
        except Unreadable:
            continue
        if node is not None:
            return node
    names = {t.text.removeprefix("\\") for t in tokens if t.kind == "name"}
    has_words = any(t.kind == "word" or (t.kind == "letters" and len(t.text) > 3) for t in tokens)
    is_known = bool(names & vocabulary.MATHEMATICS) or any(t.text in "⟦⟪∪∖" for t in tokens)
    return Node("other", (Node("words", value=key(tokens)),), is_known and not has_words)


def _read_all(parts: Iterable[Tokens]) -> tuple[Node, ...]:
    return tuple(map(_read, parts))


# ---- What stands around an answer


def _trimmed(tokens: Tokens) -> Tokens:
    """Return an answer without braces around it, marks, words that lead to it, and remarks."""
    tokens = _without_remark(tokens)
    while tokens:
        first, last = tokens[0], tokens[-1]
        if last.kind == "sign" and last.text in ".,;:✓":
            tokens = tokens[:-1]
        elif first.kind == "sign" and first.text in "→.=≈:⇒≡":
            tokens = tokens[1:]
        elif first.text == "{" and closing(tokens) == len(tokens) - 1:
            tokens = tokens[1:-1]
        elif len(tokens) > 1 and first.word in vocabulary.LEADING:
            tokens = tokens[1:]
        elif start := _after_verb(tokens):
            tokens = tokens[start:]
        else:
            break
    return tokens


def _after_verb(tokens: Tokens) -> int:
    """Return where the answer begins in "there are 5"; 0 without a verb."""
    words = [token.word for token in tokens]
    verbs = [i for i, word in enumerate(words[:-1]) if word in ("is", "are", "equals", "be")]
    begins = bool(words[0]) or tokens[0].kind == "name"
    return verbs[-1] + 1 if verbs and begins and not vocabulary.NEGATIONS & set(words) else 0


def _without_remark(tokens: Tokens) -> Tokens:
    """Take away a remark in words: "for all cases", "where C is a constant"."""
    for i, (before, token) in enumerate(itertools.pairwise(tokens), 1):
        if token.word in vocabulary.REMARKS and (token.spaced or token.kind == "word"):
            return tokens if before.word else tokens[: i - (before.text == ",")]
    return tokens


# ---- Readers of each kind, which return None, or raise Unreadable, of another one


def _list(tokens: Tokens) -> Node | None:
    parts, signs = split(tokens, ";")
    if len(parts) == 1:
        parts, signs = split(tokens, ",", "and", "or")
    items = [item for part in parts if part for item in _signed(part)]
    if len(items) < 2:
        return None
    joined = "or" if "or" in signs else "and" if "and" in signs else ","
    nodes = _read_all(items)
    names = {node.value if node.kind in COMPOUNDS else None for node in nodes}
    if joined == "or" and len(names) == 1 and names != {None}:  # x < 1 or x > 2
        return Node("∪", nodes, names.pop())
    return (units.total(nodes) if joined != "or" else None) or Node(joined, nodes)


def _signed(tokens: Tokens) -> list[Tokens]:
    """Write an answer with ± as two."""
    if tokens[0].text == "⦃" or not any(token.text in ("±", "∓") for token in tokens):
        return [tokens]
    both = ({"±": "+", "∓": "-"}, {"±": "-", "∓": "+"})
    return [[t._replace(text=signs.get(t.text, t.text)) for t in tokens] for signs in both]


def _words(tokens: Tokens) -> Node | None:
    is_text = all(
        t.word or (t.kind == "name" and t.text[0] != "\\") or t.text in "().'-!&∅" for t in tokens
    )
    if not is_text or not any(t.word or t.text == "∅" for t in tokens):
        return None
    words = [token.text for token in tokens if token.text not in "().'!&"]
    if " ".join(words).casefold() in ("all real numbers", "all reals", "real numbers"):
        return REALS
    letter = [Token("name", words[0])] if len(words[0]) == 1 else tokens
    product = units.product_of(letter) if len(tokens) == 1 else ()
    return Node("words", product, " ".join(map(_stem, words)))


def _stem(word: str) -> str:
    word = word.casefold() if len(word) > 1 else word
    return word.removesuffix("s") if len(word) > 4 and not word.endswith("ss") else word


def _relation(tokens: Tokens) -> Node | None:
    sides, signs = split(tokens, "=", "<", ">", "≤", "≥", "≠", "∈")
    if not signs:
        sides, signs = split(tokens, "≈")
    if not signs or not all(sides):
        return None
    if {*signs} <= {">", "≥"}:
        sides, signs = sides[::-1], ["<" if sign == ">" else "≤" for sign in signs[::-1]]
    nodes = _read_all(sides)
    if signs == ["∈"]:
        is_set = nodes[1].kind in COMPOUNDS and nodes[1].kind not in LISTS
        return nodes[1]._replace(value=key(sides[0])) if is_set else nodes[1]
    if signs == ["≈"]:  # 1/3 ≈ 0.33 is 1/3
        is_asked = any(map(_variable, nodes[0].walk()))
        return Node("relation", nodes, ("=",)) if is_asked else nodes[0]
    return _interval(nodes, signs) or Node("relation", nodes, tuple(signs))


def _interval(sides: tuple[Node, ...], signs: list[str]) -> Node | None:
    """Read `1 < x ≤ 2`, `x > 2`, and `2 < x` as intervals."""
    if not set(signs) <= {"<", "≤"}:
        return None
    names = [_variable(side) for side in sides]
    if len(sides) == 2 and names[0] and not names[1]:
        sides, signs, names = (minus(INFINITY), *sides), ["<", *signs], ["", *names]
    elif len(sides) == 2 and names[1] and not names[0]:
        sides, signs, names = (*sides, INFINITY), [*signs, "<"], [*names, ""]
    if len(sides) != 3 or names[0] or names[2] or not names[1]:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Node(brackets, (sides[0], sides[2]), names[1])


def _variable(node: Node) -> str:
    """Return the name of the variable that an answer is; "" of anything else."""
    is_name = node.kind in ("name", "call") and node.value not in ("e", "i", "\\pi", "∞")
    return str(node.value) if is_name else ""


def _joined(tokens: Tokens) -> Node | None:
    """Read a union, a ratio or a range."""
    for sign in ("∪", ":", "–"):
        parts, signs = split(tokens, sign)
        if signs and all(parts):
            return Node(sign, _read_all(parts))
    return None


def _bracket(tokens: Tokens) -> Node | None:
    if tokens[0].kind != "open" or closing(tokens) != len(tokens) - 1:
        return None
    brackets, inner = tokens[0].text + tokens[-1].text, tokens[1:-1]
    if tokens[0].text in "⟦⟪":
        return _matrix(brackets, inner)
    if brackets == SET and not inner:
        return Node("words", value="∅")
    parts, _ = split(inner, "|", ":")  # what follows the bar of { x | x > 3 }
    if brackets == SET and len(parts) == 2 and parts[0] and parts[0][0].kind == "name":
        node = _read(parts[1])
        if node.kind in COMPOUNDS or node.kind == "relation":
            return node
    parts = [part for part in split(inner, ",", ";")[0] if part]
    nodes = _read_all(item for part in parts for item in _signed(part))
    is_matrix = len(nodes) == 1 and tokens[1].text in "⟦⟪"
    if len(nodes) == 1 and (brackets[0] == "(" or is_matrix):
        return nodes[0]
    return Node(brackets, nodes) if brackets in COMPOUNDS else None


def _matrix(brackets: str, inner: Tokens) -> Node:
    """Read the rows of a matrix or determinant; a matrix of one column is a vector."""
    rows = [_read_all(split(row, "&")[0]) for row in split(inner, "⏎")[0] if row]
    if brackets == "⟦⟧" and all(len(row) == 1 for row in rows):
        return Node("⟨⟩", tuple(row[0] for row in rows))
    return Node(brackets, tuple(Node("&", row) for row in rows))


_READERS: tuple[Callable[[Tokens], Node | None], ...] = (
    units.date, units.time, _list, _words, _relation, _joined, _bracket, units.based,
    units.quantity, parse,
)  # fmt: skip
