"""What every grader does: give each response its reward; and the simplest one."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rollwise import loops
from rollwise.sampling import Score

Row = Mapping[str, Any]
"""What is known of a problem besides its answer: the text of its `prompt`, its `messages`, its
`data_source`, and the columns of its data that the grader takes (`Columns`)."""

Columns = Mapping[str, bool]
"""Columns of the data that something takes, and whether it needs them; `*` stands for all."""

NO_COLUMNS: Columns = MappingProxyType({})

FAILED = Score(0.0)
"""The reward that stands, as this very object, for a failure to grade."""


class Grader(ABC):
    """Gives each response its reward; also a context manager that closes itself.

    A grader of your own inherits from this and defines only `reward`; its parameter `row` may be
    left out.
    `rollwise.grading.testing.GraderContract` tests any grader.

    Attributes:
        failures: Responses that got no reward, over the grader's life, because grading them
            raised, hung, or returned something that is not a finite number.
        columns: Columns of the data that it takes.
    """

    failures: int = 0
    columns: Columns = NO_COLUMNS

    @abstractmethod
    async def reward(self, response: str, answer: str, row: Row | None = None) -> float:
        """Grade a response against the reference answer of its problem.

        Others are graded meanwhile, so that it must wait for what takes long, or start it in
        another process (`WorkerGrader`).

        Returns:
            A finite reward, which may be a `rollwise.Score`; 0.0 where grading failed.
        """

    def grade(
        self, responses: Sequence[str], answers: Sequence[str], rows: Sequence[Row] | None = None
    ) -> NDArray[np.float64]:
        """Grade n responses against the reference answers of their problems.

        Returns:
            Finite rewards, shape (n,), in the order of `responses`; 0.0 where grading failed.

        Raises:
            ValueError: Not as many answers as responses.
            TypeError: Something that is not text.
        """
        return np.array(self.scores(responses, answers, rows), dtype=np.float64)

    def scores(
        self, responses: Sequence[str], answers: Sequence[str], rows: Sequence[Row] | None = None
    ) -> list[float]:
        """Do what `grade` does; rewards that are a `rollwise.Score` stay so."""
        check_pairs(responses, answers)
        takes_rows = rows is not None and "row" in inspect.signature(self.reward).parameters
        given = (responses, answers, rows) if rows and takes_rows else (responses, answers)

        async def rewards() -> list[float]:
            return await asyncio.gather(*map(self.reward, *given))

        return loops.run(rewards())

    def close(self) -> None:
        """Release what the grader holds; a second call does nothing."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def check_pairs(responses: Sequence[str], answers: Sequence[str]) -> None:
    """Refuse responses and answers that are not pairs of texts, as `Grader.grade` says."""
    for name, texts in (("responses", responses), ("answers", answers)):
        if isinstance(texts, str):
            raise TypeError(f"{name} must be a list of texts, got one text: {texts[:80]!r}")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise TypeError(f"{name}[{i}] must be a str, got {kind}: {repr(text)[:80]}")
    if len(responses) != len(answers):
        counts = f"{len(responses)} responses and {len(answers)} answers"
        raise ValueError(f"each response needs its answer, got {counts}")


class ExactGrader(Grader):
    """Gives 1.0 to a response whose text after the last `=` is the answer, else 0.0.

    A response without `=` counts as a whole; white space around either text is ignored. For
    running sums: `7 12 3 6=6` is correct for the answer `6`.
    """

    async def reward(self, response: str, answer: str, row: Row | None = None) -> float:
        return float(response.rpartition("=")[2].strip() == answer.strip())
