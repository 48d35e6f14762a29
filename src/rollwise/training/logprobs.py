"""Log-probabilities and entropies of tokens, in memory that does not grow with the vocabulary."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

CHUNK_LOGITS = 2**26
"""The most logits that are held at a time: 256 MB in float32, 441 tokens of 152,000 words."""


def token_logprobs(
    head: Callable[[Tensor], Tensor],
    states: Tensor,
    tokens: Tensor,
    temperature: float,
    with_entropy: bool,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """Compute log π and the entropy of tokens from the model's last hidden states.

    The logits of T tokens take 4·T·V bytes, several times over with their gradients: for most
    models more than everything else together. Here they are computed for `chunk` tokens at a time,
    and again in the backward pass, unless one chunk holds all.

    Args:
        head: Makes logits, shape (N, V), of hidden states, shape (N, H).
        states: The hidden state before each token, shape (T, H).
        tokens: Token ids, shape (T,).
        temperature: Divides the logits.
        with_entropy: Whether entropies are wanted; else they are 0.
        chunk: Tokens at a time; above 0.

    Returns:
        log π and the entropy, shape (T,) each, in float32 or the logits' precision if that is
            higher.
    """
    if len(states) <= chunk:
        return of_logits(head(states), tokens, temperature, with_entropy)

    def of_states(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return of_logits(head(states), tokens, temperature, with_entropy)

    parts = [
        checkpoint(of_states, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(states.split(chunk), tokens.split(chunk), strict=True)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def of_logits(
    logits: Tensor, tokens: Tensor, temperature: float, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Compute log π and the entropy of tokens from their logits, shape (T, V)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1.0:
        logits = logits / temperature
    if not with_entropy:
        logprobs = -cross_entropy(logits, tokens, reduction="none")
        return logprobs, torch.zeros_like(logprobs)
    distribution = logits.log_softmax(dim=1)
    entropy = -(distribution.exp() * distribution).sum(dim=1)
    return distribution.gather(1, tokens[:, None]).squeeze(1), entropy
