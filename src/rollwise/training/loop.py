"""The training loop: draw a step, learn from it, evaluate, log, save."""

import copy
import time
from contextlib import suppress
from typing import Protocol

from rollwise.config import TrainConfig
from rollwise.evaluation import Evaluation
from rollwise.models.saved import list_checkpoints
from rollwise.records import Row
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.signals import Dropped
from rollwise.training.checkpoints import prune_checkpoints, save_checkpoint
from rollwise.training.pipeline import Pipeline
from rollwise.training.processor import ProcessorClock
from rollwise.training.state import Run

EVALUATION_STEP = 0
"""Held-out responses are drawn with the same random numbers before, during and after training."""


class Observer(Protocol):
    """Watches a run, and may ask it to stop."""

    @property
    def stop_requested(self) -> bool:
        """Whether the run shall stop after the current step."""
        ...

    def on_step(self, metrics: Row) -> None:
        """Receive the metrics of a finished step."""
        ...


def train(run: Run, observer: Observer) -> bool:
    """Train from `run.step` to the last step, or until its tokens or seconds are spent.

    A run that is asked to stop finishes its step, or drops what it draws if `run.droppable` says
    so, and can be resumed from a checkpoint. An evaluation that was dropped is made on resuming.

    Returns:
        Whether the run has come to its end.

    Raises:
        Dropped: The evaluation before training was dropped, so that there is nothing to save.
    """
    config = run.config
    began = time.perf_counter()
    saved = bool(list_checkpoints(run.folder.checkpoints))
    if saved:
        last = run.folder.read_metrics()[-1]
        began -= last["elapsed"]
        if "heldout" not in last and _evaluation_due(run, run.spent.tokens - last["tokens"]):
            line = _evaluated(run, last) | {"elapsed": time.perf_counter() - began}
            run.folder.replace_last(line)
            _show(run, observer, line)
    else:
        before = {"step": 0, "heldout": evaluate(run).as_json()}
        before["grader_failures"] = run.grader.failures
        _log(run, observer, before | {"elapsed": time.perf_counter() - began})
    processor = ProcessorClock()
    with Pipeline(run, config.steps_ahead) as pipeline:
        for step in range(run.step + 1, config.steps + 1):
            if observer.stop_requested or run.ended:
                break
            before_step = copy.deepcopy(run.sampler.state_dict())
            try:
                pipeline.draw(step)
            except Dropped:
                run.sampler.load_state_dict(before_step)
                break
            for metrics in pipeline.finished(wait_for_all=_must_finish(config, step)):
                saved = _end_step(run, observer, metrics, began, processor)
        for metrics in pipeline.finished(wait_for_all=True):
            saved = _end_step(run, observer, metrics, began, processor)
    if not saved:
        save(run)
    return run.ended and "heldout" in run.folder.read_metrics()[-1]


def evaluate(run: Run) -> Evaluation:
    """Draw and grade `evaluation.samples` responses to every held-out prompt."""
    config = run.config
    samples = config.evaluation.samples
    session = RolloutSession(
        run.heldout,
        exit_rule=FixedCount(samples),
        schedule=Rounds(size=samples, rounds=1),
        seed=config.seed,
        step=EVALUATION_STEP,
        positive_threshold=config.grading.positive_threshold,
    )
    run.roll_out(session)
    return Evaluation.of_counts([pool.positives for pool in session.pools.values()], samples)


def save(run: Run) -> None:
    """Write a checkpoint, and the responses drawn since the last one."""
    run.folder.flush_samples()
    folder, records = run.folder.checkpoints, run.folder.records
    save_checkpoint(folder, run.step, run.learner, run.tokenizer, run.sampler, records, run.carried)
    prune_checkpoints(folder, run.config.checkpoint.keep)


def _end_step(
    run: Run, observer: Observer, metrics: Row, began: float, processor: ProcessorClock
) -> bool:
    """Evaluate, log and save a finished step where due; returns whether it was saved."""
    config = run.config
    metrics = metrics | {"cpu_seconds": processor.lap()}
    run.step += 1
    tokens_before = run.spent.tokens
    run.spent.add(metrics)
    saved = _due(run.step, config.checkpoint.every)
    if saved:
        metrics = _begin_again(run, metrics)
    if _evaluation_due(run, tokens_before):
        metrics = _begin_again(run, metrics)
        with suppress(Dropped):
            metrics = _evaluated(run, metrics)
    _log(run, observer, metrics | {"elapsed": time.perf_counter() - began})
    if saved:
        save(run)
    processor.lap()  # what ends a step is not what it costs
    return saved


def _begin_again(run: Run, metrics: Row) -> Row:
    """Have the engine forget what is under way; the next step draws it again, with its seeds.

    So the engine is free for an evaluation, and a run that is resumed draws what it would have
    drawn. The tokens drawn in vain are added to the metrics of the newest step.
    """
    if run.carried is None:
        return metrics
    forgotten = run.engine.cancel(run.carried.in_flight)
    run.carried = run.carried.begun_again()
    run.spent.tokens += forgotten
    ledger = metrics["ledger"]
    spent = ledger["tokens"] | {"surplus": ledger["tokens"]["surplus"] + forgotten}
    return metrics | {
        "tokens": metrics["tokens"] + forgotten,
        "ledger": ledger | {"tokens": spent},
    }


def _evaluated(run: Run, metrics: Row) -> Row:
    """Add the held-out figures to the metrics of the newest step."""
    failed_before, since = run.grader.failures, time.perf_counter()
    heldout = evaluate(run).as_json()
    seconds = metrics["seconds"] | {"evaluation": time.perf_counter() - since}
    failures = metrics["grader_failures"] + run.grader.failures - failed_before
    return metrics | {"heldout": heldout, "seconds": seconds, "grader_failures": failures}


def _evaluation_due(run: Run, tokens_before: int) -> bool:
    """Say whether the newest step, before which so many tokens were spent, is to be evaluated."""
    settings, every = run.config.evaluation, run.config.evaluation.every_tokens
    return (
        run.ended
        or _due(run.step, settings.every)
        or bool(every and tokens_before // every < run.spent.tokens // every)
    )


def _must_finish(config: TrainConfig, step: int) -> bool:
    """Say whether `step` must be learned from before the next step is drawn."""
    return step == config.steps or any(
        _due(step, every) for every in (config.evaluation.every, config.checkpoint.every)
    )


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _log(run: Run, observer: Observer, metrics: Row) -> None:
    run.folder.log(metrics)
    _show(run, observer, metrics)


def _show(run: Run, observer: Observer, metrics: Row) -> None:
    run.trackers.log(metrics)
    observer.on_step(metrics)
