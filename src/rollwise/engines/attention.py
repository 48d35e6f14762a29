"""Attention within prompts, and how models of `transformers` come to that of slots."""

import copy
import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from rollwise.engines.step import Step


class Prefill:
    """Attention within prompts, which keeps their keys and values."""

    def __init__(self) -> None:
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @property
    def states(self) -> Tensor:
        """All keys and values, shape (2, layers, B, key-value heads, T, head size)."""
        halves = [
            torch.stack([kept[layer] for layer in sorted(kept)])
            for kept in (self._keys, self._values)
        ]
        return torch.stack(halves)

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        window: int | None,
    ) -> Tensor:
        """Attend to what came before; prompts begin at the first token, and what follows is lost.

        Args and result are those of `Step.attend`, with T tokens a row.
        """
        self._keys[layer], self._values[layer] = key, value
        tokens, mask = query.shape[2], None
        if window is not None and window < tokens:
            places = torch.arange(tokens, device=query.device)
            ages = places[:, None] - places
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


class UnfitError(Exception):
    """A model does something in its attention that slots do not."""


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    slots: Step | Prefill | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function of `transformers`' models that draw in slots."""
    strange = [n for n in ("softcap", "s_aux", "position_bias") if others.get(n) is not None]
    if slots is None or attention_mask is not None or strange:
        raise UnfitError(f"its attention needs {', '.join(strange) or 'a mask of its own'}")
    found = slots.attend(int(module.layer_idx), query, key, value, scaling, sliding_window)  # type: ignore[arg-type]
    return found.transpose(1, 2).contiguous(), None


ATTENTION = "rollwise_slots"
"""The name of this attention in `transformers`; it makes no masks, for lengths say it all."""

AttentionInterface.register(ATTENTION, _attention)


def sharing_weights(model: PreTrainedModel, attention: str | None = None) -> PreTrainedModel:
    """Copy a model's structure, to be run in its own way; weights and buffers are the same."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    twin: PreTrainedModel = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    if attention is not None:
        twin.set_attn_implementation(attention)
    return twin
