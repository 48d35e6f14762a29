"""The two halves of a step, drawing and learning, one after the other or in parallel."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

from rollwise.engines import EpisodeEngine
from rollwise.records import Row
from rollwise.step import Example, Step, take_step
from rollwise.training.backend import StepLearner
from rollwise.training.state import Run


@dataclass(frozen=True)
class Learned:
    """The result of learning from one step.

    Attributes:
        metrics: Of the updates.
        seconds: That they took; of a pipeline that draws ahead, that it waited for them.
        weights: After them, for the engine.
    """

    metrics: Row
    seconds: float
    weights: Mapping[str, Any]


class Pipeline:
    """Draws steps, and learns from each before the next one or, in a thread, at the same time.

    The prompt sampler learns the results of a step as soon as it is drawn, so its beliefs are never
    behind. Use the pipeline as a context manager.

    Args:
        run: The run.
        ahead: How many steps may be drawn before the updates of the steps before them are made.
    """

    def __init__(self, run: Run, ahead: int) -> None:
        self._run, self._ahead = run, ahead
        self._pending: deque[tuple[Row, Future[Learned]]] = deque()
        self._thread = ThreadPoolExecutor(1, "rollwise-learner") if ahead else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def draw(self, step: int) -> None:
        """Draw a step, and start learning from it."""
        missing_updates = len(self._pending)
        metrics, examples = draw_step(self._run, step)
        if self._ahead:
            metrics["steps_off_policy"] = missing_updates
        learned = self._start(learn, self._run.learner, examples, self._lend_memory)
        self._pending.append((metrics, learned))

    def finished(self, wait_for_all: bool) -> Iterator[Row]:
        """Yield the metrics of each step that is learned from, once its weights are loaded.

        Waits until no more than `ahead` steps are left, or none with `wait_for_all`.
        """
        allowed = 0 if wait_for_all else self._ahead
        while self._pending and (len(self._pending) > allowed or self._pending[0][1].done()):
            metrics, learning = self._pending.popleft()
            began = time.perf_counter()
            learned = learning.result()
            if self._ahead:  # what was drawn meanwhile has its own seconds
                learned = replace(learned, seconds=time.perf_counter() - began)
            yield load_learned(self._run, metrics, learned)

    def _lend_memory(self) -> None:
        """Free the engine's memory for the learner, if the engine can and draws nothing now."""
        lend = getattr(self._run.engine, "lend_memory", None)
        if lend is not None and not self._ahead and self._run.carried is None:
            lend()

    def _start(self, function: Callable[..., Learned], *arguments: Any) -> "Future[Learned]":
        if self._thread is not None:
            return self._thread.submit(function, *arguments)
        future: Future[Learned] = Future()
        future.set_result(function(*arguments))
        return future


def draw_step(run: Run, number: int) -> tuple[Row, list[Example]]:
    """Draw and grade a step; returns its metrics, and what is learned from."""
    failed_before, cancelled_before = run.grader.failures, _cancelled(run)
    step = take_step(run.recipe, run.sampler, run.roll_out, number, run.carried)
    run.carried = step.carried
    _keep_samples(run, step, number)
    failed = run.grader.failures - failed_before
    metrics = {"step": number, **step.metrics, "grader_failures": failed}
    if "ends" in metrics:
        metrics["ends"]["cancelled"] = _cancelled(run) - cancelled_before
    return metrics, step.examples(run.prompts)


def _cancelled(run: Run) -> int:
    """Episodes under way that were cancelled so far."""
    return run.engine.cancelled if isinstance(run.engine, EpisodeEngine) else 0


def learn(
    learner: StepLearner,
    examples: Sequence[Example],
    lend_memory: Callable[[], None] = lambda: None,
) -> Learned:
    """Learn from a step's examples, once the engine has lent its memory."""
    began = time.perf_counter()
    lend_memory()
    metrics, weights = learner.learn(examples), learner.weights()
    return Learned(metrics, time.perf_counter() - began, weights)


def load_learned(run: Run, metrics: Row, learned: Learned) -> Row:
    """Load the new weights into the engine; returns the metrics of the whole step."""
    began = time.perf_counter()
    if run.carried is None:
        run.engine.load_weights(learned.weights)
    else:
        run.engine.continue_with(learned.weights)  # type: ignore[attr-defined]
    seconds = learned.seconds + time.perf_counter() - began
    return metrics | learned.metrics | {"seconds": metrics["seconds"] | {"learning": seconds}}


def _keep_samples(run: Run, step: Step, number: int) -> None:
    """Record a row of every prompt of a step, and the responses of the first ones."""
    for row, group in zip(step.visits, step.groups, strict=True):
        run.folder.keep_visit(number, row, run.questions[group.pool.key])
    for group in step.groups[: run.config.records.prompts_per_step]:
        key = group.pool.key
        run.folder.keep_samples(group.records(number, run.questions[key], run.answers[key]))
