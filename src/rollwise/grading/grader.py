"""What every grader can do."""

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Grader(Protocol):
    """Gives each response its reward; also a context manager that closes itself.

    Attributes:
        failures: Responses that cost their reward, over the grader's life, because grading them
            raised, hung, or returned something that is not a finite number.
    """

    failures: int = 0

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        """Grade n responses against the reference answers of their problems.

        Returns:
            Finite rewards, shape (n,), in the order of `responses`; 0.0 where grading failed.

        Raises:
            ValueError: Not as many answers as responses.
        """
        ...

    def close(self) -> None:
        """Give back what the grader holds; a second call does nothing."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def check_lengths(responses: Sequence[str], answers: Sequence[str]) -> None:
    """Refuse responses and answers that are not pairs.

    Raises:
        ValueError: Says both lengths.
    """
    if len(responses) != len(answers):
        raise ValueError(
            f"each response needs its answer, got {len(responses)} responses and "
            f"{len(answers)} answers"
        )
