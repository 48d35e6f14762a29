"""Start and resume runs: make the model, the data, the engine, the grader and the rest of a run."""

import logging
import os
from pathlib import Path

import torch

from rollwise.config import TrainConfig
from rollwise.config.step import make_sampler
from rollwise.errors import ConfigError
from rollwise.files import list_checkpoints
from rollwise.models.building import Parts
from rollwise.models.loading import pick_device
from rollwise.records import RunFolder, Trackers
from rollwise.records.final import damaged
from rollwise.records.folder import describe_start
from rollwise.statistics.curves import COSTS, Spent, spent_until_each
from rollwise.tasks.columns import feature_columns
from rollwise.training.backend import Backend
from rollwise.training.checkpoints import check_checkpoint, load_checkpoint, prune_checkpoints
from rollwise.training.data import load_data, read_both
from rollwise.training.state import Run

log = logging.getLogger(__name__)


def resume_run(config: TrainConfig, folder: RunFolder) -> Run:
    """Set up a run to resume from its newest checkpoint; there is one."""
    found = list_checkpoints(folder.checkpoints)
    check_checkpoint(found[-1], found[-2] if len(found) > 1 else None)
    prune_checkpoints(folder.checkpoints, config.checkpoint.keep)  # what a kill has left
    return start_run(config, folder, checkpoint=found[-1])


def start_run(config: TrainConfig, folder: RunFolder, checkpoint: Path | None = None) -> Run:
    """Set up a run; the folder of a new one is created last, when everything else has worked."""
    read = read_both(config)  # before the model, which takes longer
    backend: Backend = config.backend.make().open(config, checkpoint)
    parts = Parts(config, backend)
    data = load_data(parts, read)
    columns = feature_columns(data.train, data.prompts)
    sampler = make_sampler(config, [problem.key for problem in data.train], columns)
    grader = parts.grader  # before a folder is made, because it may fail to start
    settings = config.model_dump(mode="json")
    trackers = Trackers(config.records.trackers)
    step, spent = 0, dict.fromkeys(COSTS, 0.0)
    if checkpoint is not None:
        step = load_checkpoint(checkpoint, backend.learner, sampler)
        spent = _resumed(config, folder, checkpoint, step)
    engine = parts.engine
    if checkpoint is None:
        folder.create(settings, describe_start(_device_in_words(config)))
    else:
        folder.remove_summary()
        folder.write_config(settings)
    trackers.start(folder.path, settings)
    problems = [*data.train, *data.heldout]
    return Run(
        config=config,
        folder=folder,
        trackers=trackers,
        sampler=sampler,
        engine=engine,
        grader=grader,
        learner=backend.learner,
        tokenizer=backend.tokenizer,
        prompts=data.prompts,
        answers={problem.key: problem.answer for problem in problems},
        heldout=[problem.key for problem in data.heldout],
        questions={problem.key: problem.messages[-1]["content"] for problem in problems},
        step=step,
        spent=spent,
        parts=parts,
    )


def _resumed(config: TrainConfig, folder: RunFolder, checkpoint: Path, step: int) -> Spent:
    """Take a run's records back to the step of its checkpoint; returns what it has spent."""
    if config.steps < step:
        raise ConfigError(
            f"`steps` must be at least {step}, for the run in {folder.path} has done {step}; "
            f"it is {config.steps}"
        )
    if what := ", ".join(damaged(folder)):
        log.warning("%s: %s is missing, or is not what was written", folder.path, what)
    folder.complete_metrics(step, checkpoint / "run" / "metrics.jsonl")
    folder.discard_after(step)
    *_, spent = spent_until_each(folder.read_metrics())
    return spent


def _device_in_words(config: TrainConfig) -> str:
    if config.backend.type != "local":
        return str(config.backend.type)
    device = pick_device(config.model.device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type.upper()} ({os.cpu_count()} cores)"
