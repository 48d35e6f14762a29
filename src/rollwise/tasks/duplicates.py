"""Near duplicates: problems that differ in wording or layout alone."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwise.tasks.problem import Problem

STRETCH = 5
"""Characters of each stretch of text that is compared."""

HASHES, BANDS = 96, 24
"""Of MinHash: at a similarity of 0.8 a pair is missed once in 300,000, at 0.6 once in 27."""

FEW = 20
"""With fewer problems than this, what most of them share is not removed."""

_FACTORS = np.random.default_rng(0).integers(2**62, size=(HASHES, 1), dtype=np.uint64) * 2 + 1
_LAYOUT = re.compile(r"\s+|\\left\b|\\right\b|\\[!,;: ]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

Stretches = NDArray[np.uint64]
"""The different stretches of a text, hashed and sorted."""


@dataclass
class Unique:
    """Problems without near duplicates.

    Attributes:
        problems: Those kept, in their order; of each set of near duplicates the first.
        duplicates: Key of a problem left out -> key of the one kept in its place.
    """

    problems: list[Problem] = field(default_factory=list)
    duplicates: dict[str, str] = field(default_factory=dict)


def remove_near_duplicates(problems: Iterable[Problem], threshold: float) -> Unique:
    """Keep the first of each set of problems that ask the same question.

    Two problems ask the same if they have the same answer, the same numbers in the same order, and
    a similarity of at least `threshold`: the Jaccard similarity of their sets of five-character
    stretches, after letter case, layout and what most problems share (an instruction, say) are
    removed. Problems that differ in a number are both kept, and so are problems that share their
    wording but not their answer. Candidates are found by MinHash (Broder 1997) in bands, and
    compared exactly. The result depends on the problems alone.

    Args:
        problems: Each has a key of its own.
        threshold: In (0, 1].
    """
    problems = list(problems)
    texts = [_text(problem) for problem in problems]
    found = Unique()
    index: dict[tuple[object, ...], list[int]] = {}
    kept: list[Stretches] = []
    for problem, text, stretches in zip(problems, texts, _distinctive(texts), strict=True):
        same = (problem.answer.strip(), tuple(_NUMBER.findall(text)))
        bands = [(same, number, band) for number, band in enumerate(_bands(stretches))]
        candidates = dict.fromkeys(i for band in bands for i in index.get(band, ()))
        twin = next((i for i in candidates if jaccard(kept[i], stretches) >= threshold), None)
        if twin is not None:
            found.duplicates[problem.key] = found.problems[twin].key
            continue
        for band in bands:
            index.setdefault(band, []).append(len(kept))
        kept.append(stretches)
        found.problems.append(problem)
    return found


def jaccard(first: Stretches, second: Stretches) -> float:
    """Return the similarity of two sets, |A ∩ B| / |A ∪ B|."""
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / (len(first) + len(second) - common)


def _text(problem: Problem) -> str:
    asked = " ".join(m["content"] for m in problem.messages if m["role"] != "system")
    return _LAYOUT.sub("", asked).casefold()


def _distinctive(texts: Sequence[str]) -> list[Stretches]:
    """Return the stretches of each text, without those that most texts have."""
    all_of_them = [_stretches(text) for text in texts]
    if len(texts) < FEW:
        return all_of_them
    found, counts = np.unique(np.concatenate(all_of_them), return_counts=True)
    common = found[counts > len(texts) / 2]
    rest = [np.setdiff1d(own, common, assume_unique=True) for own in all_of_them]
    return [few if len(few) else own for few, own in zip(rest, all_of_them, strict=True)]


def _stretches(text: str) -> Stretches:
    """Hash each stretch of five characters; a shorter text is one stretch."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = np.pad(codes.astype(np.uint64), (0, max(0, STRETCH - len(codes))))
    windows = np.lib.stride_tricks.sliding_window_view(codes, STRETCH)
    hashed = np.zeros(len(windows), dtype=np.uint64)
    for column in windows.T:
        hashed = (hashed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    return np.unique(hashed)


def _bands(stretches: Stretches) -> Sequence[bytes]:
    """Summarise a set in `BANDS` values; sets of similarity s share one with 1 − (1 − s⁴)^24."""
    minima_H = ((stretches * _FACTORS) >> np.uint64(16)).min(axis=1)
    return [band.tobytes() for band in minima_H.reshape(BANDS, -1)]
