r"""Step one of grading mathematics: find the final answer of a response, in linear time."""

import re
from typing import NamedTuple

LONGEST_BOX = 1000
"""Characters of an answer that is found."""


def boxed(content: str) -> str:
    r"""Put `content` into a `\boxed{}`."""
    return f"\\boxed{{{content}}}"


_TAIL = 4000
"""Characters at the end in which an answer without a box is looked for."""


def final_answer(response: str) -> str | None:
    r"""Return the final answer of a response, as it is written there; None if there is none.

    What follows the last `</think>` counts; thinking that does not end has no answer. In it, the
    first of these that is there: what the last `<answer>` tags hold; the last box (`\boxed{}`,
    `\fbox{}`), or boxes side by side; what follows the last `####`; what follows the last "answer
    is" or "Answer:"; the whole, if it is short; the last formula or number. Boxes that are empty or
    not closed do not count, nor do those before "The final answer is $5$". A percentage right after
    a box belongs to it.
    """
    text = response.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    tagged = text.rpartition("</answer>")[0].rpartition("<answer>")[2].strip()
    text = tagged or text
    boxes = _boxes(text)
    is_revised = bool(boxes and _FINAL.search(text, boxes[-1].end))
    found = None if is_revised else _joined(text, boxes)
    if is_revised or (found is None and not _BOX.search(text)):
        _, hashes, after = text[-_TAIL:].rpartition("####")
        found = after.strip().partition("\n")[0].strip() if hashes else None
        found = found or tagged or _said(text[-_TAIL:])
    return found if found and len(found) <= LONGEST_BOX else None


_PROSE = 300
"""Characters from which a reference is a solution, not an answer."""
_ITEM = re.compile(r"""(['"])((?:(?!\1\s*[,\]]).){1,1000})\1\s*(?=[,\]])""", re.DOTALL)
_LIST = re.compile(r"""\[\s*(['"]).{1,2000}\1\s*\]""", re.DOTALL)


def reference_answer(answer: str) -> str:
    r"""Return what a reference says, without what data sets put around it.

    That is the last `\boxed{}` of a whole solution, what follows the last `####` (GSM8K), the
    items of a list (`['$2$']`, as in OlympiadBench), or the answer of a sentence.
    """
    answer = answer.strip()
    if _LIST.fullmatch(answer):
        answer = ", ".join(item.strip() for _, item in _ITEM.findall(answer))
        if "\\" not in answer.replace(r"\\", ""):  # as Python and JSON write a backslash
            answer = answer.replace(r"\\", "\\")
    found = _joined(answer, _boxes(answer))
    if found is None and ("####" in answer or len(answer) > _PROSE or _MARKER.search(answer)):
        found = final_answer(answer)
    return found or answer


# ---- Boxes


class _Found(NamedTuple):
    content: str
    start: int
    end: int


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are signs, not braces
_BOX = re.compile(r"\\(?:boxed|fbox)\b\s*(?:\{|(?P<bare>[^\s${}\\]+))?")
_PERCENT = re.compile(
    r"\s*(?:\\%|(?:\$|\\\)|\\\])?\s*(?:[Pp]ercent|[Pp]ct)\b|(?:\$|\\\)|\\\])\s*\\?%)"
)
_TRIED = 8
"""The last boxes or formulas, which are looked at."""


def _boxes(text: str) -> list[_Found]:
    """Return the last boxes; not one in another, nor one that repeats the one before it.

    There are none if the last one is longer than `LONGEST_BOX`.
    """
    found: list[_Found] = []
    end = 0
    for box in list(_BOX.finditer(text))[-_TRIED:]:
        if box.start() < end:
            continue
        content, end = box["bare"], box.end()
        if content is None:
            closed = _closing_brace(text, end) if box[0].endswith("{") else None
            if closed is None:
                if len(text) - end > LONGEST_BOX:
                    found.clear()
                continue
            content = re.sub(r"\\(?:boxed|fbox)\b", "", text[end:closed]).strip()
            end = closed + 1
        if content and _PERCENT.match(text, end):
            content += r"\%"
        if content and not (found and found[-1].content == content):
            found.append(_Found(content, box.start(), end))
    return found


def _closing_brace(text: str, start: int) -> int | None:
    """Find the brace that closes the one before `start`, within the longest box."""
    depth = 1
    for found in _BRACE.finditer(text, start, min(len(text), start + LONGEST_BOX)):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth == 0:
            return found.start()
    return None


_JOINING = re.compile(r"[,;&+]|\b(?:and|or)\b|\A\W*\Z")
_CONTINUING = re.compile(
    r"\b(?:so|hence|thus|then|therefore|is|are|was|gives?|giving|gets?|which|that|we|no|not|wait|"
    r"but|again|finally?|actually|since|because|instead|yields?|equals|simplif\w+|becomes)\b|"
    r"[.!?]\s",
    re.IGNORECASE,
)
_WIDEST_GAP = 40
"""Characters between boxes that are values of one answer."""


def _joined(text: str, found: list[_Found]) -> str | None:
    r"""Join the last of the answers found in a text with those side by side before it."""
    first = len(found) - 1
    while first > 0:
        gap = text[found[first - 1].end : found[first].start]
        if len(gap) > _WIDEST_GAP or not _JOINING.search(gap) or _CONTINUING.search(gap):
            break
        first -= 1
    return ", ".join(each.content for each in found[first:]) if found else None


# ---- Answers without a box


_MARKER = re.compile(
    r"(?:\banswer\b\W{0,4}(?:is|are|equals|=|:)|\banswer[\s*:]{0,4}\n|^\W{0,4}answer\b)[\s*:=]*",
    re.IGNORECASE | re.MULTILINE,
)
_FINAL = re.compile(r"final answer is:?\s*(?:\$|\\\()", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<![A-Z])[.!?]\s+(?=[A-Z\[])|\n|\*\*|<\|")
_FORMULA = re.compile(
    r"(?<!\\)\$\$([^$]{1,1000})\$\$|(?<!\\)\$((?:[^$\n\\]|\\.){1,1000})\$|"
    r"\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]",
    re.DOTALL,
)
_NUMBER = re.compile(
    r"(?<![\w.^{])[-−]?(?:[$€£]\s?)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?"
    r"(?:\s?(?:%|percent\b|pct\b))?(?!\w*})"
)


def _said(text: str) -> str | None:
    """Return what is said to be the answer, or else the last formula or number."""
    for marker in reversed(list(_MARKER.finditer(text))):
        after = text[marker.end() :].strip(" *\n")
        formula = _FORMULA.match(after)
        end = formula.end() if formula else 0
        said = (after[:end] + _SENTENCE.split(after[end:], maxsplit=1)[0]).strip(" *")
        if said:
            return _short(said.removesuffix("."))
    return _short(text.partition("<|")[0].strip())


def _short(text: str) -> str | None:
    """Return a text that is short, else the formula or number that ends it."""
    if alone := _FORMULA.fullmatch(text):
        return alone[alone.lastindex or 0].strip()
    formulas = list(_FORMULA.finditer(text))
    words = re.findall(r"(?<!\\)[^\W\d_]{2,}", _FORMULA.sub(" ", text))
    is_short = len(words) <= (1 if formulas else 4) or any(w in ("and", "or") for w in words[:2])
    is_labelled = re.match(r"[^\W\d_]{3,} ?:", text)  # Total: 5
    if is_short and not is_labelled and len(text) <= 200 and "\n" not in _FORMULA.sub("", text):
        return text
    rest = text[formulas[-1].end() :] if formulas else text
    if numbers := list(_NUMBER.finditer(rest)):
        return numbers[-1][0]
    if formulas:
        percent = r"\%" if _PERCENT.match(text, formulas[-1].end() - 1) else ""
        spans = [_Found(f[f.lastindex or 0].strip(), *f.span()) for f in formulas[-_TRIED:]]
        return f"{_joined(text, spans)}{percent}"
    return text if len(words) <= 8 else None
