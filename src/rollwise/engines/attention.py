"""Our own attention for models of `transformers`: over slots of responses, and within prompts."""

import copy
import itertools
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from rollwise.errors import ModelError

Slots = NDArray[np.int64]


class LayerInputs(NamedTuple):
    """The inputs of a layer's attention, for B rows of T new tokens.

    Attributes:
        layer: The layer's index.
        query: Shape (B, heads, T, head size); queries of one key-value head are adjacent.
        key: Shape (B, key-value heads, T, head size).
        value: The same.
        scale: Factor of the products.
        window: The most tokens that a token attends to, itself included; None for all.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int | None


class Attention(Protocol):
    """Attends from new tokens to all tokens of their rows."""

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend, and store keys and values if later tokens need them; the shape is the query's."""


class Prefill:
    """Attention within prompts, which are padded at their ends; stores their keys and values.

    `windows` are those that the layers asked for; None among them is a layer without one.
    """

    def __init__(self) -> None:
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self.windows: set[int | None] = set()

    @property
    def states(self) -> Tensor:
        """All keys and values, shape (2, layers, B, key-value heads, T, head size)."""
        halves = (self._keys, self._values)
        return torch.stack([torch.stack([kept[i] for i in sorted(kept)]) for kept in halves])

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend from each token to those before it."""
        self._keys[inputs.layer], self._values[inputs.layer] = inputs.key, inputs.value
        self.windows.add(inputs.window)
        return causal_attention(inputs)


def causal_attention(inputs: LayerInputs) -> Tensor:
    """Attend from each token to itself and those before it, within the window if there is one."""
    _, query, key, value, scale, window = inputs
    tokens, mask = query.shape[2], None
    if window is not None and window < tokens:
        indices = torch.arange(tokens, device=query.device)
        ages = indices[:, None] - indices
        mask = (ages >= 0) & (ages < window)
    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    own_attention: Attention | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that `transformers` calls; the caller of a model passes its own.

    Raises:
        ModelError: The model's attention needs something beyond keys, values and a window.
    """
    strange = [n for n in ("softcap", "s_aux", "position_bias") if others.get(n) is not None]
    if own_attention is None or attention_mask is not None or strange:
        raise ModelError(
            f"the attention of {type(module).__name__} needs "
            f"{', '.join(strange) or 'a mask of its own'}, which it gets neither in slots nor in "
            "packed rows (`learner.packed`)"
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    found = own_attention.attend(LayerInputs(layer, query, key, value, scale, sliding_window))
    return found.transpose(1, 2).contiguous(), None


ATTENTION = "rollwise"
"""The name of this attention in `transformers`; it needs no masks, because lengths suffice."""

AttentionInterface.register(ATTENTION, _attention)


def sharing_weights(model: PreTrainedModel, attention: str | None = None) -> PreTrainedModel:
    """Copy a model's structure, to run it another way; weights and buffers are shared."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    twin: PreTrainedModel = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    for part in twin.modules():
        # A `forward` that replaces the model's own, as TRL's does, would run the original.
        # What `accelerate` hooks into a model stays.
        if isinstance(part, PreTrainedModel) and not hasattr(part, "_hf_hook"):
            vars(part).pop("forward", None)
    if attention is not None:
        twin.set_attn_implementation(attention)
    return twin


class ModelForward:
    """Runs tokens through a model with an attention of our own; its weights are shared."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._twin = sharing_weights(model, ATTENTION)

    def __call__(
        self, ids: Tensor, positions: Tensor, attention: Attention, keep: int | Tensor = 1
    ) -> Tensor:
        """Logits of T tokens a row, shape (B, kept tokens, V).

        Args:
            ids: Token ids, shape (B, T).
            positions: Of the tokens in their rows, shape (B, T).
            attention: Attends from these tokens.
            keep: The number of last tokens to compute logits for, or the indices of those.
        """
        logits: Tensor = self._twin(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=keep,
            own_attention=attention,
        ).logits
        return logits
