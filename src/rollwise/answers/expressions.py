"""Expressions: parsed from tokens into a tree, which `evaluation` evaluates."""

from collections.abc import Callable
from fractions import Fraction

from rollwise.answers.nodes import INFINITY, Node, Number, Unreadable, minus, name, number
from rollwise.answers.tokens import Token, Tokens
from rollwise.answers.vocabulary import ACCENTS, CLOSING, FUNCTIONS, UNCLEAR, UNINTERPRETED


def number_of(text: str) -> Number:
    """Return the value of a number as `tokens` writes it, if it is not too long."""
    digits, _, power = text.partition("e")
    if len(digits) > 300 or len(power) > 4:
        raise Unreadable("too many digits")
    digits, _, repeated = digits.rstrip(")").partition("(")
    places = len(digits.partition(".")[2])
    value = Fraction(digits)
    if repeated:
        value += Fraction(int(repeated), 10**places * (10 ** len(repeated) - 1))
    return Number(value * Fraction(10) ** int(power or 0), 0 if repeated else places)


def parse(tokens: Tokens) -> Node:
    """Parse a whole expression; raise `Unreadable` if it is none."""
    parser = _Parser(tokens)
    node = parser.sum()
    if parser.next.kind != "end":
        raise Unreadable(f"what is {parser.next.text!r} here?")
    return node


_BASES = {"ln": name("e"), "lg": number(10)}
_OVER = {"\\over": "/", "\\choose": "binom"}
_ROUNDED = {"⌊": "floor", "⌈": "ceil"}


class _Parser:
    """Recursive descent; the depth of brackets, which `tokens_of` limits, bounds it."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = [*tokens, Token("end", "")]
        self._at = 0
        self._bars = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def _is(self, *texts: str) -> bool:
        return self.next.kind != "word" and self.next.text in texts

    def _take(self) -> Token:
        token = self.next
        self._at += token.kind != "end"
        return token

    def _taken(self, *texts: str) -> str:
        """Take the next token if it is one of these; return its text, else ""."""
        return self._take().text if self._is(*texts) else ""

    def _expect(self, text: str) -> None:
        if self._take().text != text:
            raise Unreadable(f"{text!r} is missing")

    def sum(self) -> Node:
        terms = [self._signed(self._factors)]
        while sign := self._taken("+", "-"):
            term = self._signed(self._factors)
            terms.append(term if sign == "+" else minus(term))
        node = terms[0] if len(terms) == 1 else Node("+", tuple(terms))
        if over := self._taken(*_OVER):
            return Node(_OVER[over], (node, self.sum()))
        return node

    def _signed(self, operand: Callable[[], Node]) -> Node:
        is_negative = False
        while sign := self._taken("+", "-"):
            is_negative ^= sign == "-"
        return minus(operand()) if is_negative else operand()

    def _factors(self) -> Node:
        node = self._power()
        while True:
            if sign := self._taken("*", "/"):
                node = Node(sign, (node, self._signed(self._power)))
            elif self._begins_factor():
                node = self._juxtaposed(node)
            else:
                return node

    def _begins_factor(self) -> bool:
        if self.next.kind == "sign":
            return self._is("∞") or (self._is("|") and not self._bars)
        return self.next.kind in ("number", "name", "letters", "open") and not self._is(*_OVER)

    def _juxtaposed(self, node: Node) -> Node:
        r"""Multiply by what follows without a sign; `3 1/2`, `3\frac12` are mixed numbers."""
        previous, token = self._tokens[self._at - 1], self.next
        is_after_number = previous.kind == "number" and node.kind == "number"
        if token.kind == "number" and not is_after_number:
            if previous.text != "!" and (previous.kind != "close" or previous.text == "]"):
                raise Unreadable("a number after a letter")
            return Node("*", (node, self._power()))
        part = self._power()
        if token.kind == "number":
            self._expect("/")
            part = Node("/", (part, self._power()))
        is_fraction = part.kind == "/" and {p.kind for p in part.parts} == {"number"}
        if token.kind == "number" and not is_fraction:
            raise Unreadable("two numbers side by side")
        is_mixed = is_after_number and is_fraction and token.kind != "open"
        return Node("mixed" if is_mixed else "*", (node, part))

    def _power(self) -> Node:
        """Read a factor with what is written behind it: `x^2`, `n!`, `30°`, `x'`."""
        node = self._atom()
        while True:
            if mark := self._taken("!", "!!", "°"):
                node = Node(mark, (node,))
            elif node.kind in ("name", "call") and self._taken("'"):
                node = node._replace(value=f"{node.value}'")
            elif self._taken("^"):
                node = Node("^", (node, self._signed(self._argument)))
            else:
                return node

    def _digit(self) -> Node:
        r"""Read an argument of `\frac`, which is one digit or letter if it is not a group."""
        token = self.next
        if len(token.text) > 1 and token.kind in ("number", "letters"):
            if not token.text.isalnum():
                raise Unreadable("a digit is missing")
            kind = "number" if token.kind == "number" else "name"
            self._tokens[self._at : self._at + 1] = [Token(kind, each) for each in token.text]
        return self._argument()

    def _argument(self) -> Node:
        """Read a group, number, letter or command."""
        if self.next.kind == "name" and len(self.next.text) == 1:
            return name(self._take().text)
        return self._atom()

    def _atom(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return Node("number", value=number_of(token.text))
        if token.kind == "open":
            if token.text not in ("(", "[", "{", *_ROUNDED):
                raise Unreadable("no part of an expression")
            bars, self._bars = self._bars, 0
            node = self.sum()
            self._expect(CLOSING[token.text])
            self._bars = bars
            return Node(_ROUNDED[token.text], (node,)) if token.text in _ROUNDED else node
        if token.kind == "name":
            return self._named(token.text)
        if token.kind == "letters":
            return self._letters(token.text)
        if token.text == "|":
            self._bars += 1
            node = self.sum()
            self._expect("|")
            self._bars -= 1
            return Node("abs", (node,))
        if token.text == "∞":
            return INFINITY
        raise Unreadable(f"what is {token.text!r} here?")

    def _letters(self, text: str) -> Node:
        """Multiply the letters of `xy`; a longer or mixed one is a word."""
        if len(text) > 5 or not (text.islower() or text.isupper() or len(text) == 2):
            raise Unreadable("a word")
        return Node("*", (*map(name, text[:-1]), self._named(text[-1])))

    def _named(self, text: str) -> Node:
        bare = text.removeprefix("\\")
        if bare in FUNCTIONS and text != bare:
            return self._function(bare)
        if text in ACCENTS:
            return name(f"{text} {self._subscript()}")
        if bare in UNCLEAR or (text != bare and not (bare.isalpha() and bare.isascii())):
            raise Unreadable(f"what is {text}?")
        token = self.next
        if self._taken("_"):
            text += "_" + self._subscript()
        elif token.kind == "number" and not token.spaced and text == bare:
            text += "_" + self._take().text  # x1
        if bare in UNINTERPRETED and self._is("("):
            return Node("call", self._arguments(), text)
        return name(text)

    def _subscript(self) -> str:
        """Return the text of a token or group that is a part of a name."""
        start, depth = self._at, self._take().depth
        while depth > 0 and self.next.kind != "end":
            depth += self._take().depth
        return "".join(token.text for token in self._tokens[start : self._at]).strip("{}")

    def _arguments(self) -> tuple[Node, ...]:
        opening = self._take().text
        if opening not in ("(", "[", "⦃"):
            raise Unreadable("a bracket is missing")
        nodes = [self.sum()]
        while self._taken(",", ";"):
            nodes.append(self.sum())
        self._expect(CLOSING[opening])
        return tuple(nodes)

    def _function(self, function: str) -> Node:
        if function in ("frac", "binom"):
            first = self._digit()
            return Node("/" if function == "frac" else function, (first, self._digit()))
        if function == "sqrt":
            index = self._arguments()[:1] if self._is("[") else ()
            return Node("root", (self._argument(), *index))
        if function in ("max", "min", "gcd", "lcm"):
            return Node(function, self._arguments())
        base = self._argument() if function == "log" and self._taken("_") else _BASES.get(function)
        exponent = self._signed(self._argument) if self._taken("^") else None
        argument = self._function_argument()
        if function in _BASES:
            function = "log"
        elif exponent == minus(number(1)):
            function, exponent = f"arc{function}", None
        node = Node(function, (argument, base) if base else (argument,))
        return Node("^", (node, exponent)) if exponent else node

    def _function_argument(self) -> Node:
        r"""Read what a function is applied to: `(x+1)`, `2x`, `\frac{\pi}{3}`, up to a function."""
        is_group = self._is("(")
        node = self._signed(self._power)
        while not is_group and self._begins_factor() and not self._is("(", "["):
            if self.next.text.removeprefix("\\") in FUNCTIONS - {"sqrt", "frac"}:
                break
            node = self._juxtaposed(node)
        return node
