"""Log-probabilities and entropies of tokens, in memory that does not grow with the vocabulary."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

CHUNK_LOGITS = 2**26
"""The most logits that are held at a time: 256 MB in float32, 441 tokens of 152,000 words."""

Head = Callable[[Tensor], Tensor]


def token_logprobs(
    head: Head,
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


def head_of(model: PreTrainedModel) -> Head:
    """Return how a causal language model makes logits of its last hidden states.

    That is its last linear layer, which may hold adapters, and what some models do to the logits
    after it: a soft cap c·tanh(z/c) (Gemma), or a factor (Cohere, Granite, Falcon-H1).
    """
    linear: nn.Module = model.get_output_embeddings()
    config = model.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None)
    factor = getattr(config, "logit_scale", None) or 1.0
    factor *= getattr(config, "lm_head_multiplier", None) or 1.0
    factor /= getattr(config, "logits_scaling", None) or 1.0

    def head(states: Tensor) -> Tensor:
        logits: Tensor = linear(states)
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits if math.isclose(factor, 1.0) else logits * factor

    return head


def chunk_of(model: PreTrainedModel) -> int:
    """Return how many tokens' logits are held at a time."""
    return max(1, CHUNK_LOGITS // int(model.get_output_embeddings().weight.shape[0]))
