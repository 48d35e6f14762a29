"""The training loop: draw a step, learn from it, evaluate, log, save."""

import copy
import itertools
import logging
import os
import time
from contextlib import suppress
from typing import Protocol

from rollwise.beliefs.state import saveable
from rollwise.errors import EngineError, RunError
from rollwise.files import list_checkpoints
from rollwise.grading.program_usage import used_by
from rollwise.records import Row
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.sampling.score import acc_of
from rollwise.signals import Dropped
from rollwise.statistics import evaluation
from rollwise.statistics.curves import add_spent
from rollwise.step import Step, take_step
from rollwise.training.checkpoints import prune_checkpoints, save_checkpoint
from rollwise.training.run import Run

log = logging.getLogger(__name__)


class Observer(Protocol):
    """Watches a run, and may ask it to stop."""

    @property
    def stop_requested(self) -> bool:
        """Whether the run should stop after the current step."""

    def on_step(self, metrics: Row) -> bool | None:
        """Receive the metrics of a finished step; returns whether the run ends with it."""


def train(run: Run, observer: Observer) -> bool:
    """Train from `run.step` to the last step, or until its tokens or seconds are spent.

    A run that is asked to stop finishes its step, or drops what it draws if `run.droppable` says
    so, and can be resumed from a checkpoint. Returns whether the run has come to its end.

    Raises:
        Dropped: The evaluation before training was dropped, so that there is nothing to save.
    """
    config = run.config
    began = time.perf_counter()
    saved = bool(list_checkpoints(run.folder.checkpoints))
    if saved:
        last = run.folder.read_metrics()[-1]
        began -= last["elapsed"]
        if "heldout" not in last and _evaluation_due(run, run.spent["tokens"] - last["tokens"]):
            _evaluate_last(run, observer, began)
    else:
        heldout = evaluate(run)
        line = {"step": 0, "heldout": heldout, "grader_failures": run.grader.failures}
        line["elapsed"] = time.perf_counter() - began
        run.folder.log(line)
        _show(run, observer, line)
        run.sampler.start_at(next(iter(heldout.values()))["value"])
    for number in range(run.step + 1, config.steps + 1):
        if observer.stop_requested or run.ended:
            break
        before_step, processor = copy.deepcopy(saveable(run.sampler)), _processor_seconds()
        try:
            step = draw(run, number)
        except Dropped:
            run.sampler.load_state_dict(before_step)
            break
        metrics = learn(run, step)
        metrics["cpu_seconds"] = max(0.0, _processor_seconds() - processor)
        saved = _end_step(run, observer, metrics, began)
    if not saved:
        save(run)
    if run.stopped and "heldout" not in run.folder.read_metrics()[-1]:
        _evaluate_last(run, observer, began)
    return run.ended and "heldout" in run.folder.read_metrics()[-1]


def evaluate(run: Run) -> dict[str, dict[str, float]]:
    """Draw and grade `evaluation.samples` responses to each held-out prompt; lost ones are not."""
    config = run.config
    samples = config.evaluation.samples
    session = RolloutSession(
        run.heldout,
        exit_rule=FixedCount(samples),
        schedule=Rounds(size=samples, rounds=1),
        seed=config.seed,
        step=0,  # so that random numbers are the same before, during and after training
        positive_threshold=config.grading.positive_threshold,
    )
    run.roll_out(session)
    pools = [pool for pool in session.pools.values() if len(pool)]
    if not pools:
        raise EngineError(f"all {session.lost:,} responses to held-out prompts were lost")
    return evaluation([p.positives for p in pools], samples, [len(p) for p in pools])


def draw(run: Run, number: int) -> Step:
    """Draw and grade a step, and record its responses; a RunError if all of it failed."""
    failed_before, unanswered_before = run.grader.failures, _unanswered(run)
    lost_before = run.engine.lost_tokens
    step = take_step(run.recipe, run.sampler, run.roll_out, number)
    step.metrics.update(
        step=number,
        grader_failures=run.grader.failures - failed_before,
        unanswered=_unanswered(run) - unanswered_before,
    )
    if (run.engine.slots or run.config.engine.batch_size) < run.config.engine.batch_size:
        lost = run.engine.lost_tokens - lost_before
        step.metrics.update(engine_batch_size=run.engine.slots, lost_tokens=lost)
    _keep_samples(run, step)
    if run.step == 0 and run.recipe.resolved_objective.uses_priors:
        _say_if_not_binary(step, run.config.grading.positive_threshold)
    failed = {
        "the grader failed on": step.metrics["grader_failures"],
        "the environment failed in": step.metrics.get("ends", {}).get("failed", 0),
    }
    for what, count in failed.items():
        if count and count >= step.metrics["draws"]:
            raise RunError(
                f"{what} all {count:,} responses of step {number}, so there is nothing to learn; "
                "the log has the first reason. Fix it and repeat the command"
            )
    return step


def _say_if_not_binary(step: Step, threshold: float) -> None:
    graded = itertools.chain.from_iterable(group.pool.scores for group in step.groups)
    if odd := next((score for score in graded if acc_of(score) not in (0, 1)), None):
        log.warning(
            "a response got %g, which a belief takes as %s (`grading.positive_threshold` is %g); "
            'for rewards of many values set `method = "grpo"`, or return `acc` beside them',
            odd,
            "correct" if acc_of(odd) > threshold else "incorrect",
            threshold,
        )


def _unanswered(run: Run) -> int:
    """Count the responses in which a grader that looks for an answer found none."""
    return getattr(run.grader, "unanswered", 0)


def learn(run: Run, step: Step) -> Row:
    """Learn from a step, and load the new weights; returns the metrics of the whole step."""
    began, metrics = time.perf_counter(), step.metrics
    run.engine.sleep()
    learned = run.learner.learn(step.examples(run.prompts, [run.config.seed, metrics["step"]]))
    run.engine.load_weights(run.learner.weights())
    seconds = metrics["seconds"] | {"learning": time.perf_counter() - began}
    return {"step": metrics["step"], **metrics, **learned, "seconds": seconds}


def save(run: Run) -> None:
    """Write a checkpoint, and the responses drawn since the last one."""
    run.folder.flush_samples()
    folder, records = run.folder.checkpoints, run.folder.records
    save_checkpoint(folder, run.step, run.learner, run.tokenizer, run.sampler, records)
    prune_checkpoints(folder, run.config.checkpoint.keep)


def _keep_samples(run: Run, step: Step) -> None:
    """Record a row of every prompt of a step, and the responses of the first ones."""
    number = step.metrics["step"]
    for row in step.visits:
        run.folder.keep_visit(number, row, run.questions[row["key"]])
    for group in step.groups[: run.config.records.prompts_per_step]:
        key = group.pool.key
        run.folder.samples.keep(group.records(number, run.questions[key], run.answers[key]))


def _processor_seconds() -> float:
    """Return the processor seconds that this process and all it has started have used so far."""
    used = used_by(os.getpid())
    return sum(os.times()[:4]) if used is None else used.seconds


def _end_step(run: Run, observer: Observer, metrics: Row, began: float) -> bool:
    """Evaluate, log and save a finished step where due; returns whether it was saved."""
    config = run.config
    run.step += 1
    tokens_before = run.spent["tokens"]
    run.spent = add_spent(run.spent, metrics)
    saved = _due(run.step, config.checkpoint.every)
    if _evaluation_due(run, tokens_before):
        with suppress(Dropped):
            metrics = _evaluated(run, metrics)
    metrics = metrics | {"elapsed": time.perf_counter() - began}
    run.folder.log(metrics)
    _show(run, observer, metrics)
    if saved:
        save(run)
    return saved


def _evaluate_last(run: Run, observer: Observer, began: float) -> None:
    """Evaluate the newest step, which is recorded without it."""
    line = _evaluated(run, run.folder.read_metrics()[-1])
    line = line | {"elapsed": time.perf_counter() - began}
    run.folder.replace_last(line)
    _show(run, observer, line)


def _evaluated(run: Run, metrics: Row) -> Row:
    """Add the held-out figures to the metrics of the newest step."""
    failed_before, since = run.grader.failures, time.perf_counter()
    heldout = evaluate(run)
    seconds = metrics["seconds"] | {"evaluation": time.perf_counter() - since}
    failures = metrics["grader_failures"] + run.grader.failures - failed_before
    return metrics | {"heldout": heldout, "seconds": seconds, "grader_failures": failures}


def _evaluation_due(run: Run, tokens_before: float) -> bool:
    """Return whether to evaluate the newest step, before which `tokens_before` had been spent."""
    settings, every = run.config.evaluation, run.config.evaluation.every_tokens
    return (
        run.ended
        or _due(run.step, settings.every)
        or bool(every and tokens_before // every < run.spent["tokens"] // every)
    )


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _show(run: Run, observer: Observer, metrics: Row) -> None:
    run.trackers.log(metrics)
    run.stopped |= bool(observer.on_step(metrics))
