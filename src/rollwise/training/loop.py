"""The training loop: ask, draw, grade, choose, learn, tell."""

import time
from typing import Protocol

import numpy as np

from rollwise.evaluation import Evaluation
from rollwise.records import Row
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.training.batches import draw_batch
from rollwise.training.checkpoints import checkpoints, prune_checkpoints, save_checkpoint
from rollwise.training.groups import make_group
from rollwise.training.metrics import belief_metrics, rollout_metrics
from rollwise.training.state import Run

EVALUATION_STEP = 0
"""Held-out responses are drawn with the same random numbers before, during and after training."""


class Observer(Protocol):
    """Watches a run, and may ask it to stop."""

    stop_requested: bool

    def on_step(self, metrics: Row) -> None:
        """See the metrics of a step that is done."""
        ...


def train(run: Run, observer: Observer) -> bool:
    """Train from `run.step` to the last step; returns whether it got there.

    A run that is asked to stop finishes its step, and can be gone on with from a checkpoint.
    """
    config = run.config
    began = time.perf_counter()
    saved = bool(checkpoints(run.folder.checkpoints))
    if saved:
        began -= run.folder.read_metrics()[-1]["elapsed"]
    else:
        before = {"step": 0, "heldout": evaluate(run).as_json()}
        before["grader_failures"] = run.grader.failures
        _log(run, observer, before | {"elapsed": time.perf_counter() - began})
    while run.step < config.steps and not observer.stop_requested:
        failed_before = run.grader.failures
        metrics = train_step(run, run.step + 1)
        run.step += 1
        if run.step == config.steps or _due(run.step, config.evaluation.every):
            since = time.perf_counter()
            metrics["heldout"] = evaluate(run).as_json()
            metrics["seconds"]["evaluation"] = time.perf_counter() - since
            metrics["grader_failures"] = run.grader.failures - failed_before
        _log(run, observer, metrics | {"elapsed": time.perf_counter() - began})
        saved = _due(run.step, config.checkpoint.every)
        if saved:
            save(run)
    if not saved:
        save(run)
    return run.step == config.steps


def train_step(run: Run, step: int) -> Row:
    """Draw, grade and learn once; returns the metrics."""
    config = run.config
    failed_before = run.grader.failures
    batch = draw_batch(run.plan(), step)
    pools = list(batch.session.pools.values())

    rng = np.random.default_rng((config.seed, step))
    groups = [make_group(pool, config.group, config.advantage, rng) for pool in pools]
    since = time.perf_counter()
    learnt = run.learner.learn([e for group in groups for e in group.examples(run.prompts)])
    run.engine.load_weights(run.learner.weights())
    learning = time.perf_counter() - since

    keys, correct, drawn = batch.counts()
    believed = belief_metrics(run.sampler, keys, correct, drawn)
    run.sampler.tell(keys, correct=correct, drawn=drawn)
    for group in groups[: config.records.prompts_per_step]:
        key = group.pool.key
        run.folder.keep_samples(group.records(step, run.questions[key], run.answers[key]))
    return {
        "step": step,
        **rollout_metrics(batch, groups, first=config.group.size),
        **learnt,
        **believed,
        **run.sampler.metrics(),
        "grader_failures": run.grader.failures - failed_before,
        "seconds": {
            "sampling": batch.cost.sampling,
            "grading": batch.cost.grading,
            "learning": learning,
        },
    }


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
    """Write a checkpoint, and the responses drawn since the last."""
    run.folder.flush_samples()
    folder = run.folder.checkpoints
    save_checkpoint(folder, run.step, run.learner, run.tokenizer, run.sampler)
    prune_checkpoints(folder, run.config.checkpoint.keep)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _log(run: Run, observer: Observer, metrics: Row) -> None:
    run.folder.log(metrics)
    run.trackers.log(metrics)
    observer.on_step(metrics)
