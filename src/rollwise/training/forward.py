"""The learner's forward pass: responses to log-probabilities, a few tokens' logits at a time."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rollwise.engines.attention import ATTENTION, sharing_weights
from rollwise.engines.probe import (
    close,
    describe_fault,
    in_float32,
    plain_logprobs,
    refusal,
    refuse_sparse,
    trial,
    trial_tokens,
)
from rollwise.models.loading import computes_in_bfloat16
from rollwise.step.response import Example, Response
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
        checked: Try the model first; if not, its last linear layer is taken to make its logits.

    Raises:
        ModelError: The model fails, or a micro-batch has other probabilities than its rows alone.

    Attributes:
        model: The model that runs; shares the weights of the given one.
        packed: Whether responses are run without padding.
        by_chunks: Whether logits are made for a few tokens at a time.
    """

    def __init__(
        self, model: PreTrainedModel, temperature: float, packed: bool, checked: bool = True
    ) -> None:
        self.temperature, self.packed = temperature, packed and can_pack(model)
        self.model = sharing_weights(model, ATTENTION if self.packed else None)
        self.by_chunks = True
        with trial(model, "learned from"):
            self._head = self.model.get_output_embeddings()
            self._chunk = max(1, CHUNK_LOGITS // int(self._head.weight.shape[0]))
        if checked:
            self._try(model)

    def _try(self, model: PreTrainedModel) -> None:
        refuse_sparse(model)
        with trial(model, "learned from"):
            with torch.no_grad(), in_float32():
                self.by_chunks = self._head_is_all()
                self._check(sharing_weights(model))
            self._try_gradient()

    def __call__(self, examples: Sequence[Example], with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Run a micro-batch.

        Returns:
            log π of every token that the model drew, one response after another, shape (D,), and
            the entropy, shape (D,), which is 0 if it is not wanted.
        """
        with self._precision():
            return self.run(examples, with_entropy)

    def run(self, examples: Sequence[Example], with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Run a micro-batch in the precision that the caller has set; see `__call__`."""
        batch = self._batch(examples)
        wanted = batch.tokens, self.temperature, with_entropy
        if self.by_chunks:
            states = self._states(batch.inputs).flatten(0, 1)[batch.before]
            return token_logprobs(self._head, states, *wanted, self._chunk)
        logits = self.model(**batch.inputs, use_cache=False).logits
        return of_logits(logits.flatten(0, 1)[batch.before], *wanted)

    def _batch(self, examples: Sequence[Example]) -> Batch:
        return (pack if self.packed else pad)(examples, self.model.device)

    def _precision(self) -> torch.autocast:
        device = self.model.device
        return torch.autocast(device.type, torch.bfloat16, enabled=computes_in_bfloat16(device))

    def _states(self, inputs: Mapping[str, Any]) -> Tensor:
        output: Any = self.model.get_decoder()(**inputs, use_cache=False)
        states: Tensor = output.last_hidden_state
        return states

    def _head_is_all(self) -> bool:
        """Return whether the last linear layer makes the model's own logits.

        It does if it is given the last hidden states, and if what it makes is left as it is, which
        is tried with numbers far beyond any cap.
        """
        given: list[Tensor] = []

        def replaced(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            given.append(inputs[0])
            return torch.linspace(-1e4, 1e4, output.numel()).view_as(output).to(output)

        inputs = self._batch(_trial(self.model)[:1]).inputs
        hook = self._head.register_forward_hook(replaced)
        try:
            states = self._states(inputs)
            logits = self.model(**inputs, use_cache=False).logits
            made = self._head(states)
        except (AttributeError, TypeError):  # what `get_decoder` returns is no model
            given.clear()
        finally:
            hook.remove()
        if len(given) == 2 and close(given[0], states) and torch.equal(made, logits):
            return True
        log.warning(
            "%s computes more before or after its last linear layer: all logits of a micro-batch "
            "are held at once; lower `learner.micro_batch_tokens` if memory is short",
            type(self.model).__name__,
        )
        return False

    def _check(self, model: PreTrainedModel) -> None:
        """Raise a ModelError if a micro-batch has other probabilities than one sequence."""
        examples, at = _trial(model), self.temperature
        found, _ = self.run(examples, with_entropy=False)
        wanted = [plain_logprobs(model, e.prompt, e.response.tokens, at) for e in examples]
        if not close(found, torch.cat(wanted)):
            raise refusal(model, "learned from", describe_fault(model))

    def _try_gradient(self) -> None:
        """Compute the gradient of one tensor, as a micro-batch does."""
        trained = [weights for weights in self.model.parameters() if weights.requires_grad]
        if trained:
            with torch.enable_grad():
                logprobs, _ = self(_trial(self.model), with_entropy=False)
                torch.autograd.grad(logprobs.sum(), trained[0], allow_unused=True)


def _trial(model: PreTrainedModel) -> list[Example]:
    """Return two short examples of different lengths."""
    tokens = trial_tokens(model, 6)
    return [
        Example(tokens[:3], Response(tokens[3:]), 0.0),
        Example(tokens[4:5], Response(tokens[1:3]), 0.0),
    ]


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


@contextmanager
def recomputing(model: PreTrainedModel) -> Iterator[None]:
    """Let `transformers` recompute activations where gradient checkpointing is enabled.

    It does so only in modules in training mode; those inside them, with the dropout, are not.
    """
    modules = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    try:
        for module in modules:
            module.training = True
        yield
    finally:
        for module in modules:
            module.training = False
