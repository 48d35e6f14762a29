"""Checkpoints: all that a run needs to resume exactly where it stopped.

A checkpoint is a folder `step-000050` with `model/` (weights as safetensors, configuration,
tokenizer: what `from_pretrained` reads), `optimizer.safetensors`, `sampler.safetensors` and
`state.json`. Nothing in it is pickled.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from rollwise.errors import RunError
from rollwise.files import written_whole
from rollwise.models.saved import list_checkpoints
from rollwise.prompts import PromptSampler, State
from rollwise.training.backend import StepLearner


def save_checkpoint(
    folder: Path,
    step: int,
    learner: StepLearner,
    tokenizer: PreTrainedTokenizerBase,
    sampler: PromptSampler,
) -> Path:
    """Write the checkpoint of a step into `folder`, completely or not at all.

    Raises:
        RunError: It could not be written.
    """
    path = folder / f"step-{step:06d}"
    with written_whole(path) as partial:
        partial.mkdir(parents=True)
        learner.save(partial)
        tokenizer.save_pretrained(partial / "model")
        save_sampler(partial, sampler, step=step, updates=learner.updates)
    return path


def load_checkpoint(path: Path, learner: StepLearner, sampler: PromptSampler) -> int:
    """Restore the learner and the prompt sampler; returns the step.

    Raises:
        RunError: A part is missing or broken, or belongs to another model or data set.
    """
    try:
        state = load_sampler(path, sampler)
        learner.load(path)
        learner.updates = state["updates"]
        return int(state["step"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"cannot resume from the checkpoint {path}: {error}") from error


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what a killed process left of others."""
    for path in [*list_checkpoints(folder)[:-keep], *folder.glob(".step-*.partial")]:
        shutil.rmtree(path)


def save_sampler(folder: Path, sampler: PromptSampler, **progress: int) -> None:
    """Write a prompt sampler's state as `sampler.safetensors` and `state.json`.

    Args:
        folder: An existing folder.
        sampler: The prompt sampler.
        progress: Further numbers for `state.json`.
    """
    arrays, scalars = split_state(sampler.state_dict())
    safetensors.numpy.save_file(arrays, folder / "sampler.safetensors")
    state = {**progress, "sampler": scalars}
    (folder / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")


def load_sampler(folder: Path, sampler: PromptSampler) -> dict[str, Any]:
    """Restore a prompt sampler from what `save_sampler` wrote; returns the whole `state.json`.

    Raises:
        OSError: A file is missing.
        ValueError, KeyError, SafetensorError: A file is broken, or belongs to another sampler or
            data set.
    """
    state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    arrays = safetensors.numpy.load_file(folder / "sampler.safetensors")
    sampler.load_state_dict({**arrays, **state["sampler"]})
    return state


def split_state(state: State) -> tuple[dict[str, "np.ndarray[Any, Any]"], dict[str, Any]]:
    """Split a prompt sampler's state into arrays and values for JSON."""
    arrays = {k: np.ascontiguousarray(v) for k, v in state.items() if isinstance(v, np.ndarray)}
    return arrays, {k: v for k, v in state.items() if k not in arrays}
