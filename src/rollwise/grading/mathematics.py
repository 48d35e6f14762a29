"""Grading mathematics: find the final answer of a response, and compare it with the reference."""

import functools
import gc
import logging
import threading
import warnings
from concurrent.futures import Future

from rollwise.answers import equal_answers, final_answer, reference_answer
from rollwise.grading.grader import FAILED, Row
from rollwise.grading.pool import WorkerGrader
from rollwise.grading.worker import GradeFunction, Limits

MEMORY = 1024**3
"""Bytes that grading one response may take."""

REMEMBERED = 2**14
"""Pairs of an answer and its reference whose verdicts are kept."""

_WRONG, _RIGHT = 1.0, 2.0  # what workers return; 0.0 is a failure


def _verdict(found: str, reference: str) -> float:
    if not reference:
        raise ValueError(f"nothing can be read from the reference answer {reference!r}")
    return _RIGHT if equal_answers(found, reference) else _WRONG


def _load() -> GradeFunction:
    # Math-Verify warns in every process that its timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    equal_answers(r"\int_0^1 x dx", r"\int_0^1 y dy")  # loads more of SymPy and its parser
    equal_answers(r"5 \text{ m}", r"5 \text{ cm}")
    warnings.simplefilter("ignore")  # SymPy's, about hostile answers
    gc.set_threshold(100_000)  # SymPy makes many objects and few cycles; saves a tenth
    return _verdict


_reference = functools.lru_cache(maxsize=4096)(reference_answer)


class MathGrader(WorkerGrader):
    r"""Gives 1.0 to a response whose final answer equals the reference mathematically, else 0.0.

    `rollwise.answers.final_answer` finds the answer here, in time linear in the response's length;
    worker processes read it and compare it, each pair of an answer and a reference once.

    Attributes:
        unanswered: Responses in which no final answer was found, over the grader's life.

    Args:
        timeout: Seconds for one answer; see `Limits`. An answer that takes longer fails.
        workers: Processes; see `WorkerGrader`.

    Raises:
        ValueError: A value out of range.
    """

    def __init__(self, timeout: float = 2.0, workers: int | None = None) -> None:
        super().__init__(_load, Limits(timeout, memory=MEMORY), workers, shared=True)
        self.unanswered = 0
        self._failures = 0
        self._verdicts: dict[tuple[str, str], Future[float]] = {}
        self._lock = threading.RLock()  # a future that is done calls back at once

    @property
    def failures(self) -> int:  # type: ignore[override]
        return self._failures

    def submit(self, response: str, answer: str, row: Row | None = None) -> Future[float]:
        """Begin to grade a response, unless the same answer has been."""
        found, reference = final_answer(response), _reference(answer)
        reward: Future[float] = Future()
        with self._lock:
            if found is None:
                self.unanswered += 1
                if reference:
                    reward.set_result(0.0)
                    return reward
            pair = (found or "", reference)
            if pair not in self._verdicts:
                if len(self._verdicts) >= REMEMBERED:
                    self._verdicts.clear()
                self._verdicts[pair] = super().submit(*pair)
            verdict = self._verdicts[pair]
        verdict.add_done_callback(functools.partial(self._settle, reward, pair))
        return reward

    def _settle(self, reward: Future[float], pair: tuple[str, str], verdict: Future[float]) -> None:
        """Turn a verdict into a reward; a failure is not remembered."""
        error = verdict.exception()
        if error is not None or verdict.result() == 0.0:
            with self._lock:
                self._failures += error is None
                self._verdicts.pop(pair, None)
        if not reward.set_running_or_notify_cancel():
            return
        if error is not None:
            reward.set_exception(error)
        else:
            reward.set_result(verdict.result() - _WRONG if verdict.result() else FAILED)
