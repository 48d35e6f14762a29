"""The learner's forward pass: responses to log-probabilities, a few tokens' logits at a time."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rollwise.engines.attention import ATTENTION, sharing_weights
from rollwise.step.episodes import Example
from rollwise.training.micro_batches import Batch, pad
from rollwise.training.packing import can_pack, pack

log = logging.getLogger(__name__)

CHUNK_LOGITS = 2**26
"""The most logits that are held at a time: 256 MB in float32, 441 tokens of 152,000 words."""


class Forward:
    """Computes log π and the entropy of response tokens.

    The model's own code runs up to its last hidden states; its last linear layer is applied to a
    few tokens at a time (`token_logprobs`). Where that does not give the logits that the model
    itself gives (Gemma 2 caps them, Granite scales them), all logits are made at once.

    Args:
        model: A causal language model.
        temperature: Log-probabilities are computed at this temperature.
        packed: Run responses without padding, where the model allows it.

    Attributes:
        model: The model that runs; shares the weights of the given one.
        packed: Whether responses are run without padding.
        by_chunks: Whether logits are made for a few tokens at a time.
    """

    def __init__(self, model: PreTrainedModel, temperature: float, packed: bool) -> None:
        self.temperature, self.packed = temperature, packed and can_pack(model)
        self.model = sharing_weights(model, ATTENTION if self.packed else None)
        self._head = self.model.get_output_embeddings()
        self._chunk = max(1, CHUNK_LOGITS // int(self._head.weight.shape[0]))
        self.by_chunks = self._head_is_all()

    def __call__(self, examples: Sequence[Example], with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Run a micro-batch.

        Returns:
            log π of every token that the model drew, one response after another, shape (D,), and
            the entropy, shape (D,), which is 0 if it is not wanted.
        """
        batch = self._batch(examples)
        wanted = batch.tokens, self.temperature, with_entropy
        with self._precision():
            if self.by_chunks:
                states = self._states(batch).flatten(0, 1)[batch.before]
                return token_logprobs(self._head, states, *wanted, self._chunk)
            logits = self.model(**batch.inputs, use_cache=False).logits
            return of_logits(logits.flatten(0, 1)[batch.before], *wanted)

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return (pack if self.packed else pad)(examples, self.model.device)

    def _precision(self) -> torch.autocast:
        kind = self.model.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")

    def _states(self, batch: Batch) -> Tensor:
        output: Any = self.model.get_decoder()(**batch.inputs, use_cache=False)
        states: Tensor = output.last_hidden_state
        return states

    @torch.no_grad()
    def _head_is_all(self) -> bool:
        """Test on two tokens whether the last linear layer makes the model's own logits."""
        batch = self._batch([Example([1], [2], np.zeros(1, np.float32), 0.0)])
        with self._precision():
            found = self._head(self._states(batch))
            wanted = self.model(**batch.inputs, use_cache=False).logits
        same = found.shape == wanted.shape
        if same and torch.allclose(found, wanted, rtol=1e-3, atol=1e-3, equal_nan=True):
            return True
        log.warning(
            "%s computes more after its last linear layer: all logits of a micro-batch are held at "
            "once; lower `learner.micro_batch_tokens` if memory is short",
            type(self.model).__name__,
        )
        return False


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
        head: Makes logits, shape (N, V), from hidden states, shape (N, H).
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
