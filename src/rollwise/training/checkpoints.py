"""Checkpoints: all that a run needs to resume exactly where it stopped.

A checkpoint is a folder `step-000050` with `model/` (weights as safetensors, configuration,
tokenizer: what `from_pretrained` reads), `optimizer.safetensors`, `sampler.safetensors`,
`state.json`, copies of the run's records in `run/`, and `checksums.txt`. Nothing in it is pickled.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from rollwise.errors import RunError
from rollwise.files import damaged_files, list_checkpoints, write_checksums, written_whole
from rollwise.prompts import PromptSampler
from rollwise.records.states import load_sampler, save_sampler
from rollwise.training.build import StepLearner


def save_checkpoint(
    folder: Path,
    step: int,
    learner: StepLearner,
    tokenizer: PreTrainedTokenizerBase,
    sampler: PromptSampler,
    records: Sequence[Path] = (),
) -> Path:
    """Write the checkpoint of a step into `folder`, completely or not at all (a RunError).

    `records` are files of the run that are copied into `run/`.
    """
    path = folder / f"step-{step:06d}"
    with written_whole(path) as partial:
        partial.mkdir(parents=True)
        learner.save(partial)
        tokenizer.save_pretrained(partial / "model")
        save_sampler(partial, sampler, step=step, updates=learner.updates)
        (partial / "run").mkdir()
        for record in records:
            shutil.copyfile(record, partial / "run" / record.name)
        write_checksums(partial)
    return path


def check_checkpoint(path: Path, before: Path | None) -> None:
    """Refuse a checkpoint whose files are not as they were written; names the one `before`."""
    if damaged := damaged_files(path):
        rest = f"the one before it is {before}: to resume from that, remove {path}"
        alone = "there is none before it"
        raise RunError(
            f"the checkpoint {path} is damaged: {', '.join(damaged)} differ from what was written; "
            f"{rest if before else alone}"
        )


def load_checkpoint(path: Path, learner: StepLearner, sampler: PromptSampler) -> int:
    """Restore the learner and the prompt sampler; returns the step.

    A RunError if a part is missing or broken, or belongs to another model or data set.
    """
    try:
        state = load_sampler(path, sampler)
        learner.load(path)
        learner.updates = state["updates"]
        return int(state["step"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"cannot resume from the checkpoint {path}: {error}") from error


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what a killed process left of others.

    A checkpoint is renamed before it is removed, so that no part of it passes for one.
    """
    for left in folder.glob(".step-*.partial"):
        shutil.rmtree(left)
    for path in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(path.rename(path.with_name(f".{path.name}.partial")))
