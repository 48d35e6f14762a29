"""A step's two halves, drawing and learning, one after the other or side by side."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rollwise.records import Row
from rollwise.training.backend import Example, StepLearner
from rollwise.training.batches import draw_batch
from rollwise.training.groups import make_group
from rollwise.training.metrics import belief_metrics, rollout_metrics
from rollwise.training.state import Run

Learnt = tuple[Row, float, Mapping[str, Any]]
"""How learning went, its seconds, and the weights after it."""


@dataclass(frozen=True)
class Pending:
    """A step that is drawn, and being learnt from.

    Attributes:
        metrics: Of its drawing.
        learning: What is to come of it.
    """

    metrics: Row
    learning: "Future[Learnt]"


class Pipeline:
    """Draws steps here, and learns from each before the next or, in a thread, beside it.

    Prompts are asked for and told of as they are drawn, so what the sampler knows is never behind.
    Use it as a context manager.

    Args:
        run: Whose steps.
        ahead: How many steps may be drawn from weights that lack the updates of so many before.
    """

    def __init__(self, run: Run, ahead: int) -> None:
        self._run, self._ahead = run, ahead
        self._pending: deque[Pending] = deque()
        self._thread = ThreadPoolExecutor(1, "rollwise-learner") if ahead else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def draw(self, step: int) -> None:
        """Draw a step, and begin to learn from it."""
        lacking = len(self._pending)
        metrics, examples = draw_step(self._run, step)
        if self._ahead:
            metrics["steps_off_policy"] = lacking
        learning = self._begin(learn, self._run.learner, examples)
        self._pending.append(Pending(metrics, learning))

    def learnt(self, halt: bool) -> Iterator[Row]:
        """Give the metrics of steps that are learnt from, their weights handed to the engine.

        Waits until so few are left as may be; with `halt`, until none is.
        """
        leave = 0 if halt else self._ahead
        while self._pending and (len(self._pending) > leave or self._pending[0].learning.done()):
            pending = self._pending.popleft()
            yield take_over(self._run, pending.metrics, pending.learning.result())

    def _begin(self, function: Callable[..., Learnt], *arguments: Any) -> "Future[Learnt]":
        if self._thread is not None:
            return self._thread.submit(function, *arguments)
        future: Future[Learnt] = Future()
        future.set_result(function(*arguments))
        return future


def draw_step(run: Run, step: int) -> tuple[Row, list[Example]]:
    """Draw and grade a step, and choose what is learnt from it."""
    config = run.config
    failed_before = run.grader.failures
    batch = draw_batch(run.plan(), step)
    rng = np.random.default_rng((config.seed, step))
    pools = batch.session.pools.values()
    groups = [make_group(pool, config.group, config.advantage, rng) for pool in pools]
    keys, correct, drawn = batch.counts()
    believed = belief_metrics(run.sampler, keys, correct, drawn)
    run.sampler.tell(keys, correct=correct, drawn=drawn)
    for group in groups[: config.records.prompts_per_step]:
        key = group.pool.key
        run.folder.keep_samples(group.records(step, run.questions[key], run.answers[key]))
    metrics = {
        "step": step,
        **rollout_metrics(batch, groups, first=config.group.size),
        **believed,
        **run.sampler.metrics(),
        "grader_failures": run.grader.failures - failed_before,
        "seconds": {"sampling": batch.cost.sampling, "grading": batch.cost.grading},
    }
    return metrics, [example for group in groups for example in group.examples(run.prompts)]


def learn(learner: StepLearner, examples: Sequence[Example]) -> Learnt:
    """Learn from a step's examples."""
    since = time.perf_counter()
    metrics, weights = learner.learn(examples), learner.weights()
    return metrics, time.perf_counter() - since, weights


def take_over(run: Run, metrics: Row, learnt: Learnt) -> Row:
    """Hand the new weights to the engine; returns the metrics of the whole step."""
    learning, seconds, weights = learnt
    since = time.perf_counter()
    run.engine.load_weights(weights)
    seconds += time.perf_counter() - since
    return metrics | learning | {"seconds": metrics["seconds"] | {"learning": seconds}}
