"""Sampling tokens: the random numbers of each draw, and the responses that are made of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.sampling import Draw


@dataclass(frozen=True)
class TokenSampler:
    """How responses are drawn: from which model, at which temperature, and where they end."""

    model: PreTrainedModel
    longest: int  # the most tokens of a prompt and its response
    max_new_tokens: int
    temperature: float
    end_tokens: Tensor

    def uniforms(self, draws: Sequence[Draw]) -> Tensor:
        """The random numbers of each draw, in (0, 1], shape (draws, `max_new_tokens`).

        They come from a Philox generator keyed by the draw's seed. One generator is re-keyed for
        each draw, because making a new one would read entropy from the system and not use it.
        """
        philox = np.random.Philox(key=0)
        generator, state = np.random.Generator(philox), philox.state
        rows = np.empty((len(draws), self.max_new_tokens))
        for row, draw in zip(rows, draws, strict=True):
            state["state"]["key"][0] = draw.seed
            philox.state = state
            generator.random(out=row)
        return torch.from_numpy(1 - rows).to(self.end_tokens.device)

    def sample(self, logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        return sample(logits.float() / self.temperature, uniforms)


class Drawn(NamedTuple):
    """A response before it is decoded: its T tokens and their log-probabilities, shape (T,)."""

    draw: Draw
    tokens: list[int]
    logprobs: NDArray[np.float32]


def drawn_of(
    draws: Iterable[Draw], tokens: Tensor, logprobs: Tensor, lengths: Iterable[int]
) -> list[Drawn]:
    """Cut rows of tokens and log-probabilities, shape (draws, most tokens), to their lengths."""
    rows = zip(draws, tokens.tolist(), logprobs.cpu().numpy(), lengths, strict=True)
    return [Drawn(draw, ids[:length], row[:length].copy()) for draw, ids, row, length in rows]


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution at `uniforms`.

    Args:
        logits: Shape (B, V).
        uniforms: Shape (B,), in (0, 1], in float64: float32 has fewer numbers than a large
            vocabulary needs.

    Returns:
        Tokens and their log-probabilities, shape (B,) each. A token of probability 0 is never
        drawn. In a row whose logits are not finite, the log-probability is NaN.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first token that reaches the target: one of probability 0 reaches nothing new.
    target = uniforms * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, target[:, None])
    tokens.clamp_(max=logits.shape[-1] - 1)  # beyond it only if the total is NaN
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)
