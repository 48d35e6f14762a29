"""A tool for verl's tool agent, and a parser of the calls that the model of `tool-sums` writes.

The parser is here because that model has no template for tools: it asks by `12-9` at the end of a
turn. With a model that has one, name its parser in `multi_turn.format`, and leave the class out.
"""

import json
import re

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.function_tool import function_tool

SUM = re.compile(r"(-?\d+)([+-]\d+)")


@function_tool
def calculate(expression: str) -> str:
    """Add two numbers, or subtract one from the other.

    Args:
        expression: For instance `12-9`.
    """
    found = SUM.fullmatch(expression)
    return f"{int(found[1]) + int(found[2])} " if found else "? "


@ToolParser.register("sums")
class SumParser(ToolParser):
    """Takes the last word of a turn without `=` for a call of `calculate`."""

    async def extract_tool_calls(self, responses_ids, tools=None):
        """Return the turn's text, and the calls in it."""
        text = self.tokenizer.decode(responses_ids, skip_special_tokens=True)
        if "=" in text:
            return text, []
        words = text.split() or [""]
        return text, [
            FunctionCall(name="calculate", arguments=json.dumps({"expression": words[-1]}))
        ]
