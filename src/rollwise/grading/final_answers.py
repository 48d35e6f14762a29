r"""Finding the final answer in a response to a problem of mathematics, in linear time."""

import re

LONGEST_BOX = 1000
"""Characters of a box that is graded alone; a response with a longer box is read whole."""


def boxed(content: str) -> str:
    r"""Put `content` into a `\boxed{}`."""
    return f"\\boxed{{{content}}}"


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are signs, not braces
_BOX = re.compile(r"\\(?:boxed|fbox)\b\s*(?:\{|(?P<bare>[^\s${}\\]+))?")
_PERCENT = re.compile(
    r"\s*(?:\\%|(?:\$|\\\)|\\\])?\s*(?:[Pp]ercent|[Pp]ct)\b|(?:\$|\\\)|\\\])\s*\\?%)"
)
_TRIED = 8


def final_boxes(text: str, count: int) -> list[str] | None:
    r"""Return the contents of the last boxes (`\boxed{}`, `\fbox{}`) of a text, in its order.

    Boxes that are empty or not closed do not count, nor does one in another or one that repeats the
    one before it. A percentage right after a box belongs to it. Returns at most `count`, of the
    last 8; None if there is none, or if the last one is longer than `LONGEST_BOX`.
    """
    found: list[str] = []
    end = 0
    for box in list(_BOX.finditer(text))[-_TRIED:]:
        if box.start() < end:
            continue
        content, start = box["bare"], box.end()
        if content is None:
            closed = _closing_brace(text, start) if box[0].endswith("{") else None
            if closed is None:
                if len(text) - start > LONGEST_BOX:
                    found.clear()
                continue
            content = re.sub(r"\\(?:boxed|fbox)\b", "", text[start:closed]).strip()
            start = closed + 1
        end = start
        if content and _PERCENT.match(text, end):
            content += r"\%"
        if content and found[-1:] != [content]:
            found.append(content)
    return found[-count:] or None


def _closing_brace(text: str, start: int) -> int | None:
    """Find the brace that closes the one before `start`, within the longest box."""
    depth = 1
    for found in _BRACE.finditer(text, start, min(len(text), start + LONGEST_BOX)):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth == 0:
            return found.start()
    return None


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


def tagged_answer(response: str) -> str | None:
    """Return what the last `<answer>` tags of a response hold; None without them, or if long."""
    _, tag, content = response.rpartition("</answer>")[0].rpartition("<answer>")
    content = content.strip()
    return content if tag and 0 < len(content) <= LONGEST_BOX else None
