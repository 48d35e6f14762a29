"""A calculator as a tool: a turn that ends with `<calc>3 * (4 + 5)</calc>` is answered by 27."""

import ast
import operator
import re
from dataclasses import dataclass

from rollwise.environments import EpisodeEnvironment, Opening, Turn

CALL = re.compile(r"<calc>([^<]{1,200})</calc>\s*\Z")
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> float:
    """Return the value of an expression of numbers, `+ - * /` and parentheses; else raise."""

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.BinOp):
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return OPERATIONS[type(node.op)](value(node.operand))
        raise KeyError(type(node).__name__)

    return value(ast.parse(expression.strip(), mode="eval").body)


@dataclass(frozen=True)
class CalculatorTool(EpisodeEnvironment):
    """Answers calls of the calculator; a turn without one is the answer, and goes to the grader."""

    def begin(self, opening: Opening) -> "CalculatorTool":
        """Begin an episode, which remembers nothing."""
        return self

    def step(self, reply: str) -> Turn:
        """Answer a turn of the model."""
        call = CALL.search(reply)
        if call is None:
            return Turn(done=True)
        try:
            return Turn(f"{calculate(call[1]):g}")
        except (SyntaxError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            return Turn(f"this is no expression of numbers: {type(error).__name__}")
