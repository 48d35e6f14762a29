"""What both of TRL's trainers need: tokens of a prompt, and the prompt sampler's state."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from trl.chat_template_utils import parse_response

from rollwise.records.states import save_state
from rollwise.step import Response

FOLDER = "rollwise"
"""In each of TRL's checkpoints, the state of the prompt sampler."""


def prompt_tokens(tokenizer: Any, prompt: Any, **options: Any) -> Sequence[int]:
    """Return the token ids of a prompt, text or messages; `options` are of the chat template."""
    if isinstance(prompt, str):
        return list(tokenizer(text=prompt)["input_ids"])
    made = tokenizer.apply_chat_template(
        [prompt], add_generation_prompt=True, tokenize=True, return_dict=True, **options
    )
    return list(made["input_ids"][0])


def message_of(tokenizer: Any, prompt: Sequence[int], response: Response) -> Any:
    """Read a response's message as TRL does, by the tokenizer's template if it has one."""
    names = ("response_template", "response_schema")
    if all(getattr(tokenizer, name, None) is None for name in names):
        return {"role": "assistant", "content": response.text}
    return parse_response(tokenizer, response.tokens, prefix=list(prompt))


class SavedSampler(TrainerCallback):
    """Adds the state of a trainer's prompt sampler to each checkpoint."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Write the state; called once the trainer's own files are written."""
        if args.should_save:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}", FOLDER)
            steps = self._owner.sampling_steps
            save_state(folder, self._owner.prompt_sampler, sampling_steps=steps)
