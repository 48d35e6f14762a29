"""The learner's forward pass: from responses to the log-probabilities of their tokens."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rollwise.engines.attention import ATTENTION, sharing_weights
from rollwise.step.episodes import Example
from rollwise.training.logprobs import chunk_of, head_of, of_logits, token_logprobs
from rollwise.training.micro_batches import pad
from rollwise.training.packing import can_pack, pack

log = logging.getLogger(__name__)


class Forward:
    """Computes log π and the entropy of response tokens.

    The model's own code runs up to its last hidden states; its head is applied to a few tokens at a
    time (`token_logprobs`). Where that does not give the logits that the model itself gives, which
    is checked on the first micro-batch, all logits are made at once.

    Args:
        model: A causal language model.
        temperature: Log-probabilities are at this one.
        packed: Run responses without padding, where the model allows it.

    Attributes:
        model: Shares the weights of the given one; it is this one that runs.
        packed: Whether responses are run without padding.
    """

    def __init__(self, model: PreTrainedModel, temperature: float, packed: bool) -> None:
        self.temperature, self.packed = temperature, packed and can_pack(model)
        self.model = sharing_weights(model, ATTENTION if self.packed else None)
        self._head, self._chunk = head_of(self.model), chunk_of(self.model)
        self._head_is_known: bool | None = None
        self._states = threading.local()  # threads each run a micro-batch
        self.model.get_decoder().register_forward_hook(self._keep_states)

    def __call__(self, examples: Sequence[Example], with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Run a micro-batch.

        Returns:
            log π of every token that the model drew, one response after another, shape (D,), and
            the entropy, shape (D,), which is 0 if it is not wanted.
        """
        device = self.model.device
        batch = (pack if self.packed else pad)(examples, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            if self._head_is_known is not False:
                logits, states = self._run(batch.inputs, logits_to_keep=1)
                if self._head_is_known is None:
                    self._head_is_known = self._agrees(states, logits)
                if self._head_is_known:
                    return token_logprobs(
                        self._head,
                        states.flatten(0, 1)[batch.before],
                        batch.tokens,
                        self.temperature,
                        with_entropy,
                        self._chunk,
                    )
            logits, _ = self._run(batch.inputs, logits_to_keep=0)
            drawn = logits.flatten(0, 1)[batch.before]
            return of_logits(drawn, batch.tokens, self.temperature, with_entropy)

    def _run(self, inputs: dict[str, Any], logits_to_keep: int) -> tuple[Tensor, Tensor]:
        """Return logits and the last hidden states; nothing of them is kept here."""
        logits: Tensor = self.model(**inputs, logits_to_keep=logits_to_keep, use_cache=False).logits
        states: Tensor = self._states.__dict__.pop("last")
        return logits, states

    def _keep_states(self, _: nn.Module, __: Any, output: Any) -> None:
        self._states.last = output[0]

    @torch.no_grad()
    def _agrees(self, states: Tensor, logits: Tensor) -> bool:
        """Say whether the head makes the model's own logits of the last tokens."""
        found = self._head(states[:, -1:])
        # What is not finite is equal here, too: its loss reports it.
        same = found.shape == logits.shape
        if same and torch.allclose(found, logits, rtol=1e-3, atol=1e-3, equal_nan=True):
            return True
        log.warning(
            "%s does more after its last layer than is known here: all logits of a micro-batch are "
            "held at once",
            type(self.model).__name__,
        )
        return False
