"""The prompt sampler's state in TRL's checkpoints."""

import json
from pathlib import Path
from typing import Any

import safetensors.numpy
from safetensors import SafetensorError
from transformers import TrainerCallback

from rollwise.errors import RunError
from rollwise.files import damaged_files, write_checksums, written_whole
from rollwise.prompts import PromptSampler
from rollwise.training.checkpoints import split_state

FOLDER = "rollwise"


class SamplerKeeper(TrainerCallback):
    """Writes the sampler's state into each checkpoint that the trainer writes."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write `rollwise/` into the newest checkpoint, from one process."""
        if args.should_save:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            save_sampler(checkpoint, self._trainer.prompt_sampler, self._trainer.sampling_steps)


def save_sampler(checkpoint: Path, sampler: PromptSampler, steps: int) -> None:
    """Write a sampler's state, and how many steps were sampled, into a checkpoint's folder.

    Raises:
        RunError: It could not be written.
    """
    arrays, scalars = split_state(sampler.state_dict())
    with written_whole(checkpoint / FOLDER) as partial:
        partial.mkdir(parents=True)
        safetensors.numpy.save_file(arrays, partial / "sampler.safetensors")
        state = {"sampling_steps": steps, "sampler": scalars}
        (partial / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
        write_checksums(partial)


def load_sampler(checkpoint: str | Path, sampler: PromptSampler) -> int:
    """Load the sampler's state from a checkpoint; returns how many steps were sampled.

    Raises:
        RunError: It is missing or broken, or belongs to other prompts or another sampler.
    """
    folder = Path(checkpoint) / FOLDER
    if damaged := damaged_files(folder):
        raise RunError(f"cannot load the prompt sampler from {folder}: {damaged} are damaged")
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        arrays = safetensors.numpy.load_file(folder / "sampler.safetensors")
        sampler.load_state_dict({**arrays, **state["sampler"]})
        return int(state["sampling_steps"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"cannot load the prompt sampler from {folder}: {error}") from error
