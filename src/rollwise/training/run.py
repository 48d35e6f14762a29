"""From settings to a run that can begin, or go on."""

import copy
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.config import GradingSettings, ReadingSettings, TrainConfig
from rollwise.engines import Engine
from rollwise.engines.local import end_tokens
from rollwise.engines.transformers import make_engine
from rollwise.engines.vllm import VLLMEngine
from rollwise.errors import ConfigError, RunError
from rollwise.grading import (
    CodeGrader,
    EnvironmentGrader,
    ExactGrader,
    FunctionGrader,
    Grader,
    MathGrader,
)
from rollwise.prompts import BatchSampler, Retiring
from rollwise.records import RunFolder, Trackers
from rollwise.tasks import Problem
from rollwise.training.backend import Backend
from rollwise.training.checkpoints import checkpoints, load_checkpoint
from rollwise.training.data import load_data
from rollwise.training.learner import Learner
from rollwise.training.model import load_model, model_path
from rollwise.training.state import Run

log = logging.getLogger(__name__)


class LocalBackend:
    """The built-in learner in this process, and an engine beside it.

    Args:
        config: The settings.
        checkpoint: The checkpoint whose model is taken, if the run is gone on with.

    Raises:
        ConfigError: The engine, or the backend, is one that this is not.
        ModelError: The model cannot be loaded.
    """

    def __init__(self, config: TrainConfig, checkpoint: Path | None) -> None:
        if config.backend.type != "local":
            raise ConfigError(f"`backend.type` must be `local` here; it is {config.backend.type!r}")
        if config.engine.type == "server":
            raise ConfigError(
                "`engine.type` must be `transformers` or `vllm` to train, for a server's weights "
                "are its own and do not change; it is `server`"
            )
        torch.manual_seed(config.seed)  # new adapters draw their weights from it
        weights = checkpoint / "model" if checkpoint else None
        model, self.tokenizer = load_model(config.model, weights)
        self.context: int | None = getattr(model.config, "max_position_embeddings", None)
        self._config, temperature = config, config.engine.temperature
        merged = config.engine.type == "vllm"
        self.learner = Learner(model, config.learner, temperature, merged=merged)

    def make_engine(self) -> Engine:
        """Make the engine that the settings name, over the learner's model or its weights."""
        return _make_engine(self._config, self.learner, self.tokenizer, self.context)


OpenBackend = Callable[[TrainConfig, Path | None], Backend]
"""Makes a run's backend, of its settings and of the checkpoint that it is gone on with from."""


def begin(config: TrainConfig, folder: RunFolder, open_backend: OpenBackend = LocalBackend) -> Run:
    """Set up a new run; its folder is made once all else is known to work.

    Raises:
        RollwiseError: What is wrong with the settings, the model, the data or the folder.
    """
    return _assemble(config, folder, open_backend, checkpoint=None)


def go_on(config: TrainConfig, folder: RunFolder, open_backend: OpenBackend = LocalBackend) -> Run:
    """Set up a run from its newest checkpoint.

    Raises:
        RollwiseError: There is no checkpoint, or it does not fit the settings.
    """
    found = checkpoints(folder.checkpoints)
    if not found:
        raise RunError(
            f"{folder.path} has no checkpoint to go on from; begin anew, with another --output"
        )
    return _assemble(config, folder, open_backend, checkpoint=found[-1])


def _assemble(
    config: TrainConfig, folder: RunFolder, open_backend: OpenBackend, checkpoint: Path | None
) -> Run:
    backend = open_backend(config, checkpoint)
    learner = backend.learner
    data = load_data(config, backend.tokenizer, backend.context)
    sampler = _make_sampler(config, data.train)
    grader = make_grader(config.grading, config.data)
    problems = [*data.train, *data.heldout]
    settings = config.model_dump(mode="json")
    trackers = Trackers(config.records.trackers)
    step = 0
    if checkpoint is not None:
        step = load_checkpoint(checkpoint, learner, sampler)
        folder.go_back_to(step)
        _check_end(config.steps, step, folder)
    engine = backend.make_engine()
    if checkpoint is None:
        folder.create(settings)
    else:
        folder.write_config(settings)
    trackers.start(folder, settings)
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
    )


def _check_end(steps: int, done: int, folder: RunFolder) -> None:
    """Refuse an end that lies behind the run, or where its held-out figures were not taken."""
    least = done if "heldout" in folder.read_metrics()[-1] else done + 1
    if steps < least:
        raise ConfigError(
            f"`steps` must be at least {least}, for the run in {folder.path} has done {done}; "
            f"it is {steps}"
        )


def _make_sampler(config: TrainConfig, problems: Sequence[Problem]) -> BatchSampler | Retiring:
    keys, levels = zip(*((problem.key, problem.level) for problem in problems), strict=True)
    try:
        sampler: BatchSampler | Retiring = config.prompts.make(keys, config.seed, levels)
    except ValueError as error:
        raise ConfigError(f"`prompts`: {error}") from None
    return sampler


def _make_engine(
    config: TrainConfig,
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    context: int | None,
) -> Engine:
    model, settings = learner.model, config.engine
    if settings.type == "transformers":
        return make_engine(
            _for_sampling(model),
            tokenizer,
            settings.max_new_tokens,
            settings.temperature,
            settings.batch_size,
        )
    longest = config.data.max_prompt_tokens + settings.max_new_tokens
    engine = VLLMEngine(
        model_path(config.model.path),
        tokenizer,
        end_tokens(model.generation_config, tokenizer),
        min(longest, context or longest),
        settings.max_new_tokens,
        settings.temperature,
        settings.batch_size,
        config.vllm,
    )
    # A run that is gone on with has other weights than the model it began with.
    engine.load_weights(learner.weights())
    return engine


def make_grader(settings: GradingSettings, data: ReadingSettings) -> Grader:
    """Make the grader that the settings name; `data` names the environment.

    Raises:
        ConfigError: The user's function or environment cannot be found, or nothing contains code
            here.
    """
    if settings.type == "exact":
        return ExactGrader()
    if settings.type == "math":
        return MathGrader(settings.timeout, settings.workers, settings.convention)
    if settings.type == "code":
        return CodeGrader(settings.timeout, settings.workers, uncontained=settings.uncontained)
    if settings.type == "environment":
        named, arguments = data.environment, data.environment_arguments
        return EnvironmentGrader(named, arguments, settings.timeout, settings.workers)
    try:
        return FunctionGrader(settings.function, settings.timeout, settings.workers, settings.chat)
    except (ValueError, TypeError, ImportError, AttributeError) as error:
        raise ConfigError(f"`grading.function`: {error}") from error


def _for_sampling(model: PreTrainedModel) -> Any:
    """On a GPU responses are drawn by a copy in bfloat16; elsewhere by the model itself."""
    return model if model.device.type != "cuda" else in_bfloat16(copy.deepcopy(model))


def in_bfloat16(model: PreTrainedModel) -> Any:
    """Round a model's weights to bfloat16, where they are.

    Its buffers keep their precision: the frequencies of rotary embeddings, rounded, would turn
    distant positions into others.
    """
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model
