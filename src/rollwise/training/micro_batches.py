"""Micro-batches: which responses are run together, and in what form a model takes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollwise.step.episodes import Example


@dataclass(frozen=True)
class Batch:
    """A micro-batch as a model takes it.

    Attributes:
        inputs: Keyword arguments of the model, on its device.
        before: For each token that the model drew, one response after another: the index of the
            token before it, counted through all rows; shape (D,).
        tokens: Their ids, shape (D,).
    """

    inputs: dict[str, Any]
    before: Tensor
    tokens: Tensor


def micro_batches(
    examples: Sequence[Example], rows: Sequence[int], max_tokens: int, packed: bool = False
) -> Iterator[list[int]]:
    """Split rows into batches of at most `max_tokens`, padding included, the longest rows first.

    A single row may have more. Yields the indices of each batch; `packed` ones have no padding.
    """
    batch: list[int] = []
    prompt = response = total = 0
    for i in sorted(rows, key=lambda i: len(examples[i]), reverse=True):
        prompt = max(prompt, len(examples[i].prompt))
        response = max(response, len(examples[i].response))
        total += len(examples[i])
        if batch and (total if packed else (len(batch) + 1) * (prompt + response)) > max_tokens:
            yield batch
            batch, total = [], len(examples[i])
            prompt, response = len(examples[i].prompt), len(examples[i].response)
        batch.append(i)
    if batch:
        yield batch


def pad(examples: Sequence[Example], device: torch.device) -> Batch:
    """Pad prompts on the left and responses on the right, so that responses start in one column."""
    width = max(len(example.prompt) for example in examples)
    length = max(len(example.response) for example in examples)
    ids = torch.zeros(len(examples), width + length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        start, end = width - len(example.prompt), width + len(example.response)
        ids[row, start:end] = torch.tensor([*example.prompt, *example.response])
        mask[row, start:end] = 1
    chosen = drawn_indices(examples, range(width, ids.numel(), ids.shape[1]))
    tokens = ids.flatten()[chosen]
    inputs = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
    }
    on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
    return Batch(on_device, (chosen - 1).to(device), tokens.to(device))


def drawn_indices(examples: Sequence[Example], begins: Iterable[int]) -> Tensor:
    """Return the indices of all tokens that the model drew, shape (D,), one response after another.

    `begins` are the indices of the first token of each.
    """
    indices = [
        begin + (np.arange(len(e.response)) if e.loss_mask is None else np.flatnonzero(e.loss_mask))
        for e, begin in zip(examples, begins, strict=True)
    ]
    return torch.from_numpy(np.concatenate(indices))
