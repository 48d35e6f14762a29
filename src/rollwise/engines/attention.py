"""Attention of our own for models of `transformers`: to slots of responses, and within prompts."""

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """What the attention of a layer is given for B rows of T new tokens.

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
        ...


@dataclass(frozen=True)
class Part:
    """The rows of one bucket in a step.

    Attributes:
        rows: Which rows of the step they are.
        store: The bucket's keys and values, shape (2, layers, rows in use, heads, width, size).
        longest: Tokens of the longest row, the new one included.
        indices: Where each row's new token goes, shape (rows,).
        flat_indices: The same for each of its heads, counted through a layer's keys, shape
            (rows * heads,).
    """

    rows: slice
    store: Tensor
    longest: int
    indices: Tensor
    flat_indices: Tensor

    @classmethod
    def of(cls, begin: int, store: Tensor, lengths: Slots, device: torch.device) -> "Part":
        """Cut a bucket to the rows in use."""
        count, (heads, width) = len(lengths), store.shape[3:5]
        begins = np.arange(count * heads) * width
        return cls(
            rows=slice(begin, begin + count),
            store=store[:, :, :count],
            longest=int(lengths.max()) + 1,
            indices=torch.from_numpy(lengths).to(device),
            flat_indices=torch.from_numpy(begins + lengths.repeat(heads)).to(device),
        )

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a row's token attends, −∞ elsewhere, shape (rows, 1, 1, longest)."""
        ages = self.indices[:, None] - torch.arange(self.longest, device=self.indices.device)
        hidden = ages < 0
        if window is not None:
            hidden |= ages >= window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, -math.inf)[:, None, None]

    def keep(self, half: int, layer: int, states: Tensor) -> Tensor:
        """Store the new tokens' keys (`half` 0) or values (1), shape (B, heads, 1, size).

        Returns:
            The keys or values of all tokens, shape (rows, heads, longest, size).
        """
        kept, new = self.store[half, layer], states[self.rows].flatten(0, 2)
        kept.view(-1, kept.shape[-1]).index_copy_(0, self.flat_indices, new)
        return kept[:, :, : self.longest]


class Step:
    """Attention of one new token a row to all tokens of its row."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._masks: dict[int | None, list[Tensor]] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend to the new tokens, which are stored, and to those before them."""
        layer, query, key, value, scale, window = inputs
        grouped = query.reshape(*key.shape[:2], -1, query.shape[-1])
        if window not in self._masks:
            self._masks[window] = [part.mask(window, query.dtype) for part in self._parts]
        found = torch.empty_like(grouped)
        for part, mask in zip(self._parts, self._masks[window], strict=True):
            keys, values = part.keep(0, layer, key), part.keep(1, layer, value)
            found[part.rows] = _attend(grouped[part.rows], keys, values, mask, scale)
        return found.view(query.shape)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one token a row; on a CPU plain products are faster for so few queries."""
    if query.device.type != "cpu":
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    scores = (query * scale) @ keys.transpose(2, 3)
    weights = torch.softmax(scores.add_(mask), dim=-1, dtype=torch.float32)
    return weights.to(values.dtype) @ values


class Prefill:
    """Attention within prompts, padded at their ends, whose keys and values it stores."""

    def __init__(self) -> None:
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @property
    def states(self) -> Tensor:
        """All keys and values, shape (2, layers, B, key-value heads, T, head size)."""
        halves = (self._keys, self._values)
        return torch.stack([torch.stack([kept[i] for i in sorted(kept)]) for kept in halves])

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend from each token to those before it."""
        self._keys[inputs.layer], self._values[inputs.layer] = inputs.key, inputs.value
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
    """Copy a model's structure, to run it another way; weights and buffers are shared.

    A `forward` that somebody has put in the place of a model's own, as TRL does, is left out: the
    copy of it would run the original. What `accelerate` hooks into a model stays.
    """
    tensors = itertools.chain(model.parameters(), model.buffers())
    twin: PreTrainedModel = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    for part in twin.modules():
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
        """Compute logits.

        Args:
            ids: Token ids, shape (B, T).
            positions: Of the tokens in their rows, shape (B, T).
            attention: Attends from these tokens.
            keep: Which tokens to compute logits for: the number of last ones, or indices.

        Returns:
            Logits, shape (B, kept tokens, V).
        """
        logits: Tensor = self._twin(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=keep,
            own_attention=attention,
        ).logits
        return logits
