"""What a run of TRL keeps beside what TRL keeps: the prompt sampler's state, and `visits/`."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import TrainerCallback

from rollwise.errors import RunError
from rollwise.files import damaged_files, write_checksums, written_whole
from rollwise.prompts import PromptSampler
from rollwise.records.states import load_sampler, save_sampler

FOLDER = "rollwise"


class StateKeeper(TrainerCallback):
    """Writes the sampler's state into each checkpoint of the trainer, and what was drawn so far."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """End training where the sampler has no prompts left."""
        control.should_training_stop |= self._trainer.prompt_sampler.exhausted

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write `rollwise/` into the newest checkpoint, from one process."""
        if args.should_save:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            own = self._trainer
            own.folder.flush_samples()
            save_state(checkpoint, own.prompt_sampler, own.sampling_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write the visits since the last checkpoint, from one process."""
        if args.should_save:
            self._trainer.folder.flush_samples()


def save_state(checkpoint: Path, sampler: PromptSampler, steps: int) -> None:
    """Write into a checkpoint's folder what is resumed from, after so many steps.

    Raises:
        RunError: It could not be written.
    """
    with written_whole(checkpoint / FOLDER) as partial:
        partial.mkdir(parents=True)
        save_sampler(partial, sampler, sampling_steps=steps)
        write_checksums(partial)


def load_state(checkpoint: str | Path, sampler: PromptSampler) -> int:
    """Load what `save_state` wrote; returns how many steps were sampled.

    Raises:
        RunError: It is missing or broken, or belongs to other prompts or another sampler.
    """
    folder = Path(checkpoint) / FOLDER
    if not folder.exists():
        raise RunError(
            f"cannot resume from {checkpoint}: it has no folder {FOLDER}/, so AdaptiveGRPOTrainer "
            "did not write it; to begin from its weights, pass its folder as `model`"
        )
    if damaged := damaged_files(folder):
        raise RunError(f"cannot load the prompt sampler from {folder}: {damaged} are damaged")
    try:
        return int(load_sampler(folder, sampler)["sampling_steps"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"cannot load the prompt sampler from {folder}: {error}") from error
