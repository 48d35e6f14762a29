"""What any grader must do, as tests: subclass, write `make`, and run pytest.

    from rollwise.grading.testing import GraderContract

    class TestMyGrader(GraderContract):
        correct = ("so it is 3", "3")
        incorrect = ("so it is 4", "3")

        def make(self):
            return MyGrader()

A class with `grade(response, answer) -> float` is tested as it is used, in worker processes: then
`make` returns `FunctionGrader("my_module:MyGrader", settings={"credit": 0.5})`.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rollwise import loops
from rollwise.grading.grader import Grader

HOSTILE = (
    "",
    " " * 100_000,
    "\\boxed{" * 2_000,
    "(" * 20_000,
    "9" * 10_000,
    "".join(map(chr, range(32))),
    "\ud800",
    "\\" * 1_000,
    "%s %d {0} {} $x$ ${x}",
)
"""Responses that break careless graders."""


class GraderContract:
    """The contract of a grader. Tests are independent; each makes graders of its own.

    `correct` are a response and an answer that get `reward`, and `incorrect` some that get 0.0.
    """

    correct: tuple[str, str] = ("3", "3")
    incorrect: tuple[str, str] = ("4", "3")
    reward: float = 1.0

    def make(self) -> Grader:
        """Make the grader to test."""
        raise NotImplementedError

    def test_rewards_come_in_the_order_of_the_responses(self) -> None:
        """By `grade`, and by `reward` for many at a time; for repeated pairs too."""
        pairs = [self.correct, self.incorrect, self.correct, self.correct, self.incorrect]
        expected = [self.reward, 0.0, self.reward, self.reward, 0.0]
        with self.make() as grader:
            assert isinstance(grader, Grader)
            for count in (0, 5):
                rewards = grader.grade([r for r, _ in pairs[:count]], [a for _, a in pairs[:count]])
                assert rewards.shape == (count,) and rewards.dtype == np.float64
                assert rewards.tolist() == expected[:count]

            async def together() -> list[float]:
                return await asyncio.gather(*(grader.reward(*pair) for pair in pairs))

            assert loops.run(together()) == expected
            assert grader.failures == 0

    def test_what_is_no_pair_of_texts_is_refused(self) -> None:
        """By name and position, and before anything is graded."""
        response, answer = self.correct
        refused: list[tuple[type[Exception], Any, Any, str]] = [
            (ValueError, [response, response], [answer], "got 2 responses and 1 answers"),
            (TypeError, [response, 2], [answer, answer], "responses[1] must be a str, got int"),
            (TypeError, [response], [None], "answers[0] must be a str, got NoneType"),
            (TypeError, response, [answer], "responses must be a list of texts"),
        ]
        with self.make() as grader:
            for kind, responses, answers, message in refused:
                with pytest.raises(kind, match=re.escape(message)):
                    grader.grade(responses, answers)

    def test_a_hostile_response_gets_a_finite_reward_and_costs_no_other(self) -> None:
        """Each may be a failure, and is counted at most once."""
        response, answer = self.correct
        with self.make() as grader:
            rewards = grader.grade(
                [*HOSTILE, response, self.incorrect[0]],
                [*[answer] * (len(HOSTILE) + 1), self.incorrect[1]],
            )
            assert np.isfinite(rewards).all()
            assert rewards[-2:].tolist() == [self.reward, 0.0]
            assert 0 <= grader.failures <= len(HOSTILE)

    def test_threads_can_share_it(self) -> None:
        """Each gets its own rewards: every other thread, in the opposite order."""

        def grade(thread: int) -> bool:
            pairs = [(self.correct, self.reward), (self.incorrect, 0.0)][:: (-1) ** thread] * 3
            texts, expected = zip(*pairs, strict=True)
            return np.array_equal(grader.grade(*zip(*texts, strict=True)), expected)

        with self.make() as grader, ThreadPoolExecutor(4) as threads:
            assert all(threads.map(grade, range(4)))

    def test_it_can_be_closed_twice_and_unused(self) -> None:
        """As a context and by hand."""
        self.make().close()
        with self.make() as grader:
            grader.grade([self.correct[0]], [self.correct[1]])
            grader.close()
