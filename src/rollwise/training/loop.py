"""The training loop: ask, draw, grade, choose, learn, tell."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from rollwise.config import TrainConfig
from rollwise.engines import Engine
from rollwise.engines.engine import Prompts
from rollwise.evaluation import Evaluation
from rollwise.grading import Grader
from rollwise.prompts import BatchSampler, Retiring
from rollwise.records import Row, RunFolder, Trackers
from rollwise.sampling import FixedCount, RolloutSession, Rounds
from rollwise.sampling.pool import Key
from rollwise.training.checkpoints import checkpoints, prune_checkpoints, save_checkpoint
from rollwise.training.groups import make_group
from rollwise.training.learner import Learner
from rollwise.training.metrics import rollout_metrics
from rollwise.training.rollouts import RolloutSeconds, roll_out

log = logging.getLogger(__name__)

EVALUATION_STEP = 0
"""Held-out responses are drawn with the same random numbers before, during and after training."""


@dataclass
class Run:
    """Everything a run works with.

    Attributes:
        config: The settings.
        folder: Where it is written down.
        trackers: Where metrics also go.
        sampler: Chooses prompts.
        engine: Draws responses.
        grader: Gives them rewards.
        learner: Changes the model.
        tokenizer: Saved with the model.
        prompts: Token ids of every prompt, training and held out.
        answers: The reference answer to each.
        heldout: The held-out prompts.
        questions: What each prompt looks like, for people.
        step: The steps done so far.
    """

    config: TrainConfig
    folder: RunFolder
    trackers: Trackers
    sampler: BatchSampler | Retiring
    engine: Engine
    grader: Grader
    learner: Learner
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    answers: Mapping[Key, str]
    heldout: Sequence[Key]
    questions: Mapping[Key, str]
    step: int = 0


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
    session, rollout_seconds = draw_batch(run, step)
    pools = list(session.pools.values())

    rng = np.random.default_rng((config.seed, step))
    groups = [make_group(pool, config.group, config.advantage, rng) for pool in pools]
    since = time.perf_counter()
    learnt = run.learner.learn([e for group in groups for e in group.examples(run.prompts)])
    run.engine.load_weights(run.learner.weights())
    learning = time.perf_counter() - since

    correct, drawn = [pool.positives for pool in pools], [len(pool) for pool in pools]
    run.sampler.tell(list(session.pools), correct=correct, drawn=drawn)
    for group in groups[: config.records.prompts_per_step]:
        key = group.pool.key
        run.folder.keep_samples(group.records(step, run.questions[key], run.answers[key]))
    return {
        "step": step,
        **rollout_metrics(session, groups, first=config.group.size),
        **learnt,
        **run.sampler.metrics(),
        "grader_failures": run.grader.failures - failed_before,
        "seconds": {**vars(rollout_seconds), "learning": learning},
    }


def draw_batch(run: Run, step: int) -> tuple[RolloutSession, RolloutSeconds]:
    """Ask for prompts and sample them.

    With `group.unresolved = "refill"`, further prompts are sampled in place of those that carry no
    signal, until the batch is full or that was done `group.refills` times; a batch that is not
    full then is trained on as it is (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2).
    """
    config = run.config
    session = RolloutSession(
        run.sampler.ask(),
        exit_rule=config.exit.make(),
        schedule=config.schedule.make(),
        seed=config.seed,
        step=step,
        positive_threshold=config.grading.positive_threshold,
    )
    seconds = roll_out(session, run.engine, run.grader, run.prompts, run.answers)
    if config.group.unresolved != "refill":
        return session, seconds
    for _ in range(config.group.refills):
        missing = config.prompts.batch_size - _mixed(session)
        further = run.sampler.ask(missing, exclude=_drawn(run, session)) if missing else []
        if not further:
            break
        session.add(further)
        seconds += roll_out(session, run.engine, run.grader, run.prompts, run.answers)
    missing = config.prompts.batch_size - _mixed(session)
    if missing:
        log.warning("step %d: %d groups are missing from the batch after refilling", step, missing)
    return session, seconds


def _mixed(session: RolloutSession) -> int:
    return sum(not pool.uniform for pool in session.pools.values())


def _drawn(run: Run, session: RolloutSession) -> NDArray[np.bool_]:
    """Say of each of the sampler's prompts whether the session has it, in key order."""
    drawn = np.zeros(len(run.sampler.keys), dtype=bool)
    drawn[run.sampler.index.places(list(session.pools))] = True
    return drawn


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
    roll_out(session, run.engine, run.grader, run.prompts, run.answers)
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
