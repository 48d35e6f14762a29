"""The final answers of responses, and what they vote for in maj@k."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from rollwise.answers import final_answer
from rollwise.answers.finding import LONGEST_BOX, boxed
from rollwise.config.choices import GradingSection
from rollwise.grading.mathematics import MathGrader
from rollwise.grading.settings import ExactSettings, MathSettings
from rollwise.statistics.figures import ProblemResult

COMPARED = 16
"""The most different answers to one problem that are compared as mathematics."""

SHARE_OF_TIMEOUT = 0.25
"""Of the time limit for a response, for comparing two answers: there are more pairs of these."""

_NOTHING = re.compile(
    r"(?<!\w)\s+|\s+(?!\w)|\\(?:left|right)(?![A-Za-z.])|\\[!,;: ]|\\\$|\$|[.,;:]+\Z"
)
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+|/[1-9]\d*)?")


def final_answers(responses: Sequence[str], grading: GradingSection) -> list[str] | None:
    """Return the final answer of each response to a problem; "" means that there is none.

    `exact`: the text after the last `=`. `math`: what the grader finds. None for graders of other
    kinds, which do not tell two wrong answers apart.
    """
    grader = grading.make()
    if isinstance(grader, ExactSettings):
        return [response.rpartition("=")[2].strip() for response in responses]
    if not isinstance(grader, MathSettings):
        return None
    return [final_answer(response) or "" for response in responses]


def with_votes(results: Sequence[ProblemResult], grading: GradingSection) -> list[ProblemResult]:
    """Return results with what their responses vote for, where these have answers.

    Correct responses vote together, and those without an answer do not. Incorrect answers are one
    if they are the same text or number or, for `math`, if the grader takes one for the other within
    a time limit. It compares the `COMPARED` most frequent ones of a problem; and none if no
    response is correct, where votes decide nothing.
    """
    if not isinstance(grading.make(), MathSettings):
        return [_voted(result, result.answers or ()) for result in results]
    with MathGrader(SHARE_OF_TIMEOUT * grading.timeout, grading.workers) as grader:
        return [_voted(result, _merged(result, grader)) for result in results]


Key = str | Fraction
"""An answer without insignificant notation; if it is a number, this."""


def _merged(result: ProblemResult, grader: MathGrader) -> list[Key]:
    """Replace each answer to a problem by the first of the incorrect ones that it equals."""
    keys = [_key(answer) for answer in result.answers or ()]
    counts = Counter(key for key, right in zip(keys, result.correct, strict=False) if not right)
    compared = [
        key for key, _ in counts.most_common() if key != "" and len(str(key)) <= LONGEST_BOX
    ]
    pairs = [
        pair
        for pair in itertools.combinations(compared[:COMPARED], 2)
        if result.correct.any() and not all(isinstance(key, Fraction) for key in pair)
    ]
    rewards = grader.grade(
        [boxed(str(other)) for _, other in pairs], [str(one) for one, _ in pairs]
    )
    first: dict[Key, Key] = {}
    for (one, other), reward in zip(pairs, rewards, strict=True):
        if reward > 0:
            first.setdefault(other, first.get(one, one))
    return [first.get(key, key) for key in keys]


def _key(answer: str) -> Key:
    text = re.sub(r"\\[dt]frac", r"\\frac", _NOTHING.sub("", answer))
    is_number = len(text) <= LONGEST_BOX and _NUMBER.fullmatch(text)
    return Fraction(text.replace(",", "")) if is_number else text


def _voted(result: ProblemResult, keys: Sequence[Key]) -> ProblemResult:
    """Number the answers in the order in which they come."""
    if result.answers is None:
        return result
    numbers: dict[Key, int] = {"": -1}
    votes = [numbers.setdefault(key, len(numbers)) for key in keys]
    return replace(result, votes=np.where(result.correct, 0, votes))
