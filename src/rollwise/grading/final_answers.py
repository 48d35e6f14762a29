r"""Finding the final answer in a response to a problem of mathematics, in linear time."""

import re

from rollwise.grading.answer_tokens import closing_brace

LONGEST_BOX = 1000
"""Characters of a box that is graded alone; a response with a longer box is read whole."""


def boxed(content: str) -> str:
    r"""Put `content` into a `\boxed{}`."""
    return f"\\boxed{{{content}}}"


_BOX = re.compile(r"\\(?:boxed|fbox)\b\s*(?:\{|(?P<bare>[^\s${}\\]+))?")
_PERCENT = re.compile(
    r"\s*(?:\\%|(?:\$|\\\)|\\\])?\s*(?:[Pp]ercent|[Pp]ct)\b|(?:\$|\\\)|\\\])\s*\\?%)"
)
_TRIED = 8


def final_boxes(text: str, count: int) -> list[str] | None:
    r"""Return the contents of the last boxes (`\boxed{}`, `\fbox{}`) of a text, in its order.

    Boxes that are empty or not closed do not count, nor does one that repeats the one before it. A
    percentage right after a box belongs to it.

    Args:
        text: A response.
        count: The most boxes; at most 8 of the last are looked at.

    Returns:
        None if there is no box, or if the last one is longer than `LONGEST_BOX`.
    """
    found: list[str] = []
    for box in reversed(list(_BOX.finditer(text))[-_TRIED:]):
        content, end = box["bare"], box.end()
        if content is None:
            closed = closing_brace(text, end, LONGEST_BOX) if box[0].endswith("{") else None
            if closed is None:
                if not found and len(text) - end > LONGEST_BOX:
                    return None
                continue
            content, end = text[box.end() : closed].strip(), closed + 1
        if not content:
            continue
        if _PERCENT.match(text, end):
            content += r"\%"
        if not found or found[0] != content:
            found.insert(0, content)
        if len(found) == count:
            break
    return found or None


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
_TAGS = ("<answer>", "</answer>")


def tagged_answer(response: str) -> str | None:
    """Return what the last `<answer>` tags of a response hold; None without them, or if long."""
    end = response.rfind(_TAGS[1])
    start = response.rfind(_TAGS[0], 0, max(end, 0))
    content = response[start + len(_TAGS[0]) : end].strip()
    return content if start >= 0 and 0 < len(content) <= LONGEST_BOX else None


# ---- Minerva's convention (Lewkowycz et al. 2022, appendix D; `minerva_math` of lm-evaluation-
# harness), in which a response ends "Final Answer: The final answer is $…$. I hope it is correct."

_BEGIN, _END = "Final Answer: The final answer is", "I hope it is correct"

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    (r"\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)
_REMOVED = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units"),
    *(r"\ldots", "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm"),
    *("pounds", "meters", "meals", "edges", "students", "childrentickets", "multiples"),
    *(r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}"),
    *(r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
_REWRITTEN = (
    (r"(.*?)(\$)(.*?)(\$)(.*)", r"$\3$"),
    (r"(\\text\{)(.*?)(\})", r"\2"),
    (r"(\\textbf\{)(.*?)(\})", r"\2"),
    (r"(\\overline\{)(.*?)(\})", r"\2"),
    (r"(\\boxed\{)(.*)(\})", r"\2"),
    (r"(frac)([^{])(.)", r"frac{\2}{\3}"),
    (r"(sqrt)([^{])", r"sqrt{\2}"),
    (r"\$", ""),
)


def minerva_answer(response: str) -> str | None:
    """Return the text between the two parts of the convention, in the first line that has both."""
    # As in lm-evaluation-harness, the second part is appended to the response, and any character
    # may stand for each of the two full stops.
    for line in f"{response}{_END}.".split("\n"):
        begin = line.find(_BEGIN)
        end = line.find(f" {_END}", begin + len(_BEGIN) + 1) if begin >= 0 else -1
        if 0 <= end < len(line) - len(f" {_END}"):
            return line[begin + len(_BEGIN) : end - 1].strip()
    return None


def minerva_normalised(answer: str) -> str:
    """Normalise a final answer; not in linear time, so only for worker processes."""
    answer = answer.split("=")[-1]
    for before, after in _REPLACED:
        answer = answer.replace(before, after)
    for text in _REMOVED:
        answer = answer.replace(text, "")
    for pattern, replacement in _REWRITTEN:
        answer = re.sub(pattern, replacement, answer)
    without_commas = answer.replace(",", "")
    return without_commas if without_commas.isdigit() else answer
