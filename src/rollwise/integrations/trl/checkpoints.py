"""What a run of TRL keeps beside what TRL keeps: the prompt sampler's state, and `visits/`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rollwise.errors import RunError
from rollwise.prompts import PromptSampler
from rollwise.records.states import load_state, save_state

log = logging.getLogger(__name__)

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
            progress = {"sampling_steps": own.sampling_steps, "batch": own.batch}
            save_state(checkpoint / FOLDER, own.prompt_sampler, **progress)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write the visits since the last checkpoint, from one process."""
        if args.should_save:
            self._trainer.folder.flush_samples()


def load_checkpoint(checkpoint: str, sampler: PromptSampler, batch: Sequence[int]) -> int:
    """Load the sampler's state from one of the trainer's checkpoints; returns the steps sampled.

    A warning says so if a step was of another `batch`, its prompts and the members of each group.
    """
    folder = Path(checkpoint) / FOLDER
    if not folder.exists():
        raise RunError(
            f"cannot resume from {checkpoint}: it has no folder {FOLDER}/, so AdaptiveGRPOTrainer "
            "did not write it; to begin from its weights, pass its folder as `model`"
        )
    steps, before = load_state(folder, sampler, "sampling_steps", "batch")
    if list(batch) != before:
        log.warning(
            "%s is of steps with %d prompts and groups of %d; from here on they have %d prompts "
            "and groups of %d. Weights, optimizer and what the sampler believes are those of the "
            "checkpoint; epochs, the steps that are left of `num_train_epochs` and the learning "
            "rate follow the new size, so the run is not the one that was begun",
            checkpoint,
            *before,
            *batch,
        )
    return int(steps)
