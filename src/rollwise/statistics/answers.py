r"""Extract the final answers of responses, which vote in maj@k.

Only those of incorrect responses matter: correct responses vote together. If two ways of writing
the same wrong answer are not recognized as equal, its votes are split.
"""

import re
from collections.abc import Sequence

from rollwise.config.choices import GradingSection
from rollwise.grading.final_answers import final_boxes
from rollwise.grading.settings import ExactSettings, MathSettings

_LAST = re.compile(r"\$([^$\n]{1,200})\$|(?<![\w.])(-?\d[\d,]*+(?:\.\d+)?+(?:/\d+)?+)")
_NOTHING = re.compile(r"\s+|\\left|\\right|\\[!,;: ]|\\\$|\$|[.,;:]+\Z")


def final_answers(responses: Sequence[str], grading: GradingSection) -> list[str] | None:
    r"""Extract the final answer of each response; "" means that there is none.

    `exact`: the text after the last `=`. `math`: the content of the last box, as for the
    grader, else the last formula or number. None for graders of other kinds, which do not tell two
    wrong answers apart.
    """
    grader = grading.make()
    if isinstance(grader, ExactSettings):
        return [response.rpartition("=")[2].strip() for response in responses]
    if not isinstance(grader, MathSettings):
        return None
    return [_final(response) for response in responses]


def _final(response: str) -> str:
    """Extract an answer without insignificant notation, in time linear in its length."""
    found = final_boxes(response, 1) or [
        first or second for first, second in _LAST.findall(response)
    ]
    return re.sub(r"\\[dt]frac", r"\\frac", _NOTHING.sub("", found[-1] if found else ""))
