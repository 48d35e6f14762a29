"""Micro-batches: which responses are run together, padded to one shape."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from rollwise.step.groups import Example


def micro_batches(
    examples: Sequence[Example], rows: Sequence[int], max_tokens: int
) -> Iterator[list[int]]:
    """Split rows into batches of at most `max_tokens`, padding included, the longest rows first.

    Args:
        examples: The responses of an update.
        rows: Indices of those to run.
        max_tokens: The most tokens of a batch; a single row may have more.

    Yields:
        The indices of a batch.
    """
    batch: list[int] = []
    prompt = response = 0
    for i in sorted(rows, key=lambda i: len(examples[i]), reverse=True):
        prompt = max(prompt, len(examples[i].prompt))
        response = max(response, len(examples[i].response))
        if batch and (len(batch) + 1) * (prompt + response) > max_tokens:
            yield batch
            batch = []
            prompt, response = len(examples[i].prompt), len(examples[i].response)
        batch.append(i)
    if batch:
        yield batch


def pad(examples: Sequence[Example]) -> tuple[Tensor, Tensor, int]:
    """Pad prompts on the left and responses on the right, so that responses start in one column.

    Returns:
        Token ids and attention mask, shape (responses, columns), and the column in which the
        responses start; the logits before it are not needed.
    """
    width = max(len(example.prompt) for example in examples)
    length = max(len(example.response) for example in examples)
    ids = torch.zeros(len(examples), width + length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        start, end = width - len(example.prompt), width + len(example.response)
        ids[row, start:end] = torch.tensor([*example.prompt, *example.response])
        mask[row, start:end] = 1
    return ids, mask, width


def drawn_tokens(examples: Sequence[Example], mask: Tensor) -> Tensor:
    """Say which response tokens the model drew.

    Args:
        examples: The responses.
        mask: The part of `pad`'s attention mask that covers responses, shape (responses, columns).

    Returns:
        Where those tokens are, of the shape of `mask`, boolean.
    """
    drawn = mask.bool()
    for row, example in enumerate(examples):
        if example.own is not None:
            drawn[row, : len(example.own)] &= torch.from_numpy(example.own).to(drawn.device)
    return drawn


def advantage_per_token(examples: Sequence[Example], like: Tensor) -> Tensor:
    """Repeat each response's advantage for the tokens that the model drew, shape (D,) over all."""
    lengths = [example.drawn for example in examples]
    return like.new_tensor(np.repeat([example.advantage for example in examples], lengths))


def engine_logprobs(examples: Sequence[Example], like: Tensor) -> Tensor:
    """Join the engine's log-probabilities of the tokens that the model drew, shape (D,)."""
    return like.new_tensor(np.concatenate([example.drawn_logprobs for example in examples]))
