"""What every grader does: give each response its reward; and the simplest one."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result
from rollwise.step.session import finished


@runtime_checkable
class Grader(Protocol):
    """Gives each response its reward; also a context manager that closes itself.

    A grader of your own inherits from this and defines only `grade`, if that cannot hang or
    crash. `rollwise.grading.testing.GraderContract` tests any grader.

    Attributes:
        failures: Responses that got no reward, over the grader's life, because grading them
            raised, hung, or returned something that is not a finite number.
    """

    failures: int = 0

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        """Grade n responses against the reference answers of their problems.

        Returns:
            Finite rewards, shape (n,), in the order of `responses`; 0.0 where grading failed.

        Raises:
            ValueError: Not as many answers as responses.
            TypeError: Something that is not text.
        """

    def submit(self, responses: Sequence[str], answers: Sequence[str]) -> list[Future[float]]:
        """Begin what `grade` does; return futures of the rewards, in the order of `responses`.

        The default, for quick graders, grades them at once. Raises as `grade`.

        Raises:
            PluginError: The `grade` of a user's class did not return finite rewards, one per
                response.
        """
        rewards: Any = self.grade(responses, answers)
        with contextlib.suppress(TypeError, ValueError):
            values = np.asarray(rewards, dtype=np.float64)
            if values.shape == (len(responses),) and np.isfinite(values).all():
                return [finished(reward) for reward in values.tolist()]
        raise wrong_result(self, "grade", f"{len(responses)} finite rewards", rewards)

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

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> NDArray[np.float64]:
        check_pairs(responses, answers)
        correct = [
            response.rpartition("=")[2].strip() == answer.strip()
            for response, answer in zip(responses, answers, strict=True)
        ]
        return np.array(correct, dtype=np.float64)
