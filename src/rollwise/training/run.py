"""Start and resume runs: make the model, the data, the engine, the grader and the rest of a run."""

import logging
from pathlib import Path

from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler
from rollwise.errors import ConfigError, RunError
from rollwise.grading.factory import make_grader
from rollwise.models.playing import play_episodes
from rollwise.models.saved import list_checkpoints
from rollwise.records import RunFolder, Trackers
from rollwise.training.backend import Backend
from rollwise.training.checkpoints import (
    check_checkpoint,
    load_carried,
    load_checkpoint,
    prune_checkpoints,
)
from rollwise.training.data import environment_source, load_data
from rollwise.training.state import Run, Spent

log = logging.getLogger(__name__)


def start_run(config: TrainConfig, folder: RunFolder) -> Run:
    """Set up a new run. Its folder is created last, when everything else has worked.

    Raises:
        RollwiseError: The settings, the model, the data or the folder cannot be used.
    """
    return _assemble(config, folder, checkpoint=None)


def resume_run(config: TrainConfig, folder: RunFolder) -> Run:
    """Set up a run to resume from its newest checkpoint.

    Raises:
        RollwiseError: There is no checkpoint, or it does not fit the settings.
    """
    found = list_checkpoints(folder.checkpoints)
    if not found:
        raise RunError(
            f"{folder.path} has no checkpoint to resume from; start a new run with another --output"
        )
    check_checkpoint(found[-1], found[-2] if len(found) > 1 else None)
    prune_checkpoints(folder.checkpoints, config.checkpoint.keep)  # what a kill has left
    return _assemble(config, folder, checkpoint=found[-1])


def _assemble(config: TrainConfig, folder: RunFolder, checkpoint: Path | None) -> Run:
    backend: Backend = config.backend.make().open(config, checkpoint)
    learner = backend.learner
    data = load_data(config, backend.tokenizer, backend.context)
    sampler = make_sampler(
        config,
        [problem.key for problem in data.train],
        [problem.level for problem in data.train],
        [problem.measured for problem in data.train],
    )
    grader = make_grader(config.grading, config.data, config.plugin_folder)
    problems = [*data.train, *data.heldout]
    settings = config.model_dump(mode="json")
    trackers = Trackers(config.records.trackers)
    step, spent, carried = 0, Spent(), None
    if checkpoint is not None:
        step = load_checkpoint(checkpoint, learner, sampler)
        carried = load_carried(checkpoint)
        folder.complete_metrics(step, checkpoint / "run" / "metrics.jsonl")
        folder.discard_after(step)
        for metrics in folder.read_metrics():
            spent.add(metrics)
        _check_end(config, step, folder)
    engine = backend.make_engine()
    if config.episode.plays:
        engine = play_episodes(
            config.episode,
            environment_source(config),
            engine,
            {problem.key: problem for problem in problems},
            backend.tokenizer,
            backend.context,
            config.engine.max_new_tokens,
        )
    if config.step.carry_over and not hasattr(engine, "continue_with"):
        raise ConfigError(
            "`step.carry_over` must be false here: responses of the engine "
            f"{type(engine).__name__} cannot go on with new weights; the built-in engine's can "
            "(`engine.type = transformers`, unless it draws in whole batches)"
        )
    if checkpoint is None:
        folder.create(settings)
    else:
        folder.remove_summary()
        folder.write_config(settings)
    trackers.start(folder.path, settings)
    return Run(
        config=config,
        folder=folder,
        trackers=trackers,
        sampler=sampler,
        engine=engine,
        grader=grader,
        learner=learner,
        tokenizer=backend.tokenizer,
        prompts=data.prompts,
        answers={problem.key: problem.answer for problem in problems},
        heldout=[problem.key for problem in data.heldout],
        questions={problem.key: problem.messages[-1]["content"] for problem in problems},
        step=step,
        carried=carried,
        spent=spent,
    )


def _check_end(config: TrainConfig, done: int, folder: RunFolder) -> None:
    """Refuse a last step that is past."""
    if config.steps < done:
        raise ConfigError(
            f"`steps` must be at least {done}, for the run in {folder.path} has done {done}; "
            f"it is {config.steps}"
        )
