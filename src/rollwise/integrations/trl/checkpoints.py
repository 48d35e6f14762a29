"""What a checkpoint of TRL's trainer holds beside what TRL keeps: the prompt sampler's state."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rollwise.errors import RunError
from rollwise.prompts import PromptSampler
from rollwise.records.states import load_state, save_state

FOLDER = "rollwise"


class StateKeeper(TrainerCallback):
    """Writes the sampler's state into each checkpoint of the trainer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """End training where the sampler has no prompts left."""
        control.should_training_stop |= self._trainer.prompt_sampler.exhausted

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write `rollwise/` into the newest checkpoint, from one process."""
        if args.should_save:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            steps = self._trainer.sampling_steps
            save_state(checkpoint / FOLDER, self._trainer.prompt_sampler, sampling_steps=steps)


def load_checkpoint(checkpoint: str, sampler: PromptSampler) -> int:
    """Load the sampler's state from one of the trainer's checkpoints; returns the steps sampled."""
    folder = Path(checkpoint) / FOLDER
    if not folder.exists():
        raise RunError(
            f"cannot resume from {checkpoint}: it has no folder {FOLDER}/, so AdaptiveGRPOTrainer "
            "did not write it; to begin from its weights, pass its folder as `model`"
        )
    (steps,) = load_state(folder, sampler, "sampling_steps")
    return int(steps)
