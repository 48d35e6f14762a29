"""Several graders as one: a reward that adds up theirs by weights."""

import asyncio
import math
from collections.abc import Mapping
from operator import itemgetter

from rollwise.grading.grader import FAILED, Grader, Row
from rollwise.sampling import Score


class WeightedGrader(Grader):
    """Gives each response the sum of several graders' rewards by their weights, as TRL does.

    A reward's `parts` are the graders' own rewards by name, and what further figures these have, as
    `NAME/FIGURE`. A response that one of them fails on gets 0 for that part.

    Args:
        graders: By name; this one closes them.
        weights: Of those whose weight is not 1, by name.
        correct: The name of the one whose `acc` says whether a response is correct.
    """

    def __init__(
        self, graders: Mapping[str, Grader], weights: Mapping[str, float], correct: str
    ) -> None:
        self._graders, self._weights, self._correct = graders, weights, correct
        taken = [each for grader in graders.values() for each in grader.columns.items()]
        self.columns = dict(sorted(taken, key=itemgetter(1)))  # that it is needed goes before

    @property
    def unanswered(self) -> int:
        """Responses in which a grader of mathematics found no final answer."""
        return sum(getattr(grader, "unanswered", 0) for grader in self._graders.values())

    async def reward(self, response: str, answer: str, row: Row | None = None) -> Score:
        rewards = [grader.reward(response, answer, row) for grader in self._graders.values()]
        found = dict(zip(self._graders, map(Score.of, await asyncio.gather(*rewards)), strict=True))
        self.failures += any(score is FAILED for score in found.values())
        parts = {name: float(score) for name, score in found.items()}
        total = math.fsum(self._weights.get(name, 1.0) * own for name, own in parts.items())
        further = {
            f"{n}/{part}": v for n, score in found.items() for part, v in score.parts.items()
        }
        return Score(total, found[self._correct].acc, parts | further)

    def close(self) -> None:
        for grader in self._graders.values():
            grader.close()
