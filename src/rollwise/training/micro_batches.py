"""Micro-batches: which responses are run together, and in what form a model takes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollwise.step.response import Example


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
    total = 0
    for i in sorted(rows, key=lambda i: len(examples[i]), reverse=True):
        total += len(examples[i])
        padded = (len(batch) + 1) * len(examples[batch[0]]) if batch else 0
        if batch and (total if packed else padded) > max_tokens:
            yield batch
            batch, total = [], len(examples[i])
        batch.append(i)
    if batch:
        yield batch


def pad(examples: Sequence[Example], device: torch.device) -> Batch:
    """Pad rows on the right, where no token of a causal model sees it: it needs no mask."""
    ids = torch.zeros(len(examples), max(map(len, examples)), dtype=torch.long)
    for row, example in zip(ids, examples, strict=True):
        row[: len(example)] = torch.tensor([*example.prompt, *example.response.tokens])
    begins = [row * ids.shape[1] + len(example.prompt) for row, example in enumerate(examples)]
    chosen = drawn_indices(examples, begins)
    tokens = ids.flatten()[chosen]
    inputs = {"input_ids": ids.to(device)}
    return Batch(inputs, (chosen - 1).to(device), tokens.to(device))


def drawn_indices(examples: Sequence[Example], begins: Iterable[int]) -> Tensor:
    """Return the indices of all tokens that the model drew, shape (D,), one response after another.

    `begins` are the indices of the first token of each.
    """
    indices = [
        begin + (np.arange(r.drawn) if r.mask is None else np.flatnonzero(r.mask))
        for begin, r in zip(begins, (e.response for e in examples), strict=True)
    ]
    return torch.from_numpy(np.concatenate(indices))
