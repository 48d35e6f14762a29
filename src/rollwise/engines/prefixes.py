"""The prefix cache: each prompt is run once, and its draws share its keys and values."""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.engines.attention import ModelForward, Prefill

Prompt = tuple[int, ...]

KEPT_TOKENS = 65_536
"""The most tokens of prompts whose keys and values are kept for later draws."""

PREFILL_TOKENS = 8_192
"""The most tokens of prompts that are run together, padding included."""

PREFILL_LOGITS = 2**25
"""The most logits that are computed together when prompts are run."""


class PrefixCache:
    """Keys and values of a model's prompts, shared by all their draws, now and later."""

    def __init__(self, forward: ModelForward, model: PreTrainedModel) -> None:
        self._forward, self._device = forward, model.device
        self._vocabulary: int = model.config.get_text_config().vocab_size
        self._known: OrderedDict[Prompt, tuple[Tensor, Tensor]] = OrderedDict()

    def __getitem__(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """The keys and values of a prompt that has been run, and the logits of its next token."""
        return self._known[prompt]

    def clear(self) -> None:
        self._known.clear()

    @torch.inference_mode()
    def run_missing(self, prompts: Collection[Prompt]) -> None:
        """Run the prompts that are not cached; may drop others, the least recently used first."""
        missing = sorted((prompt for prompt in prompts if prompt not in self._known), key=len)
        for portion in self._portions(missing):
            self._run(portion)
        for prompt in prompts:
            self._known.move_to_end(prompt)
        kept = sum(map(len, self._known))
        while kept > KEPT_TOKENS and len(self._known) > len(prompts):
            kept -= len(self._known.popitem(last=False)[0])

    def _portions(self, prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
        """Split prompts, sorted by length, into portions that are run together."""
        most = max(1, math.isqrt(PREFILL_LOGITS // self._vocabulary))
        begin = 0
        for end in range(1, len(prompts) + 1):
            rows = end - begin
            whole = end == len(prompts) or (rows + 1) * len(prompts[end]) > PREFILL_TOKENS
            if whole or rows == most:
                yield prompts[begin:end]
                begin = end

    def _run(self, prompts: Sequence[Prompt]) -> None:
        """Run prompts together, padded at their ends, which nothing attends to."""
        device, lengths = self._device, [len(prompt) for prompt in prompts]
        ids = torch.zeros((len(prompts), max(lengths)), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        lasts, column = np.unique(np.array(lengths) - 1, return_inverse=True)
        prefill = Prefill()
        positions = torch.arange(ids.shape[1], device=device).expand(ids.shape)
        kept = torch.from_numpy(lasts).to(device)
        logits = self._forward(ids.to(device), positions, prefill, kept)
        states = prefill.states
        for row, prompt in enumerate(prompts):
            own = states[:, :, row : row + 1, :, : len(prompt)].clone()
            self._known[prompt] = own, logits[row, column[row]].clone()
