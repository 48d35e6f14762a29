"""The forward pass of a continuous batch: the model's own code, or a faster one for known models.

A step of a small model is so short that calling its modules would take half of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm
from transformers import PreTrainedModel

from rollwise.engines.attention import Attention

Operation = Callable[[Tensor], Tensor]


class Forward(Protocol):
    """Runs tokens through a model, with attention over slots."""

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Attention, keep: int | Tensor = 1
    ) -> Tensor:
        """Compute logits.

        Args:
            ids: Token ids, shape (B, T).
            positions: Of the tokens in their rows, shape (B, T).
            slots: The attention.
            keep: Which tokens to compute logits for: the number of last ones, or indices.

        Returns:
            Logits, shape (B, kept tokens, V).
        """
        ...


def forward_of(twin: PreTrainedModel) -> Forward:
    """Choose how to run `twin`, a model with attention over slots."""
    base = twin.get_base_model() if hasattr(twin, "get_base_model") else twin  # of adapters
    return Decoder(base) if type(base).__name__ in KNOWN else ModelForward(twin)


@dataclass(frozen=True)
class ModelForward:
    """A model's own code."""

    twin: PreTrainedModel

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Attention, keep: int | Tensor = 1
    ) -> Tensor:
        """Compute logits."""
        logits: Tensor = self.twin(
            input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=keep, slots=slots
        ).logits
        return logits


KNOWN = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""Architectures that `Decoder` computes."""


class Decoder:
    """Computes what the `KNOWN` architectures compute, in fewer operations.

    Linear layers stay the model's modules, because they may hold adapters or be quantised.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        decoder: Any = model.model
        self._embed, self._rotary, self._head = (
            decoder.embed_tokens,
            decoder.rotary_emb,
            _linear(model.lm_head),
        )
        self._layers = [_Layer.of(layer) for layer in decoder.layers]
        self._norm = _norm(decoder.norm)

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Attention, keep: int | Tensor = 1
    ) -> Tensor:
        """Compute logits."""
        hidden = self._embed(ids)
        cos, sin = self._rotary(hidden, positions)
        rotation = cos[:, :, None], _with_half_negated(sin)[:, :, None]
        for layer in self._layers:
            hidden += layer.attend(hidden, rotation, slots)
            hidden += layer.mlp(hidden)
        kept = slice(-keep, None) if isinstance(keep, int) else keep
        logits: Tensor = self._head(self._norm(hidden[:, kept]))
        return logits


@dataclass(frozen=True)
class _Layer:
    """A layer's modules."""

    index: int
    head_size: int
    scale: float
    window: int | None
    before_attention: Operation
    query: Operation
    key: Operation
    value: Operation
    query_norm: Operation | None
    key_norm: Operation | None
    out: Operation
    before_mlp: Operation
    gate: Operation
    activation: Operation
    up: Operation
    down: Operation

    @classmethod
    def of(cls, layer: Any) -> Self:
        attention, mlp = layer.self_attn, layer.mlp
        has_norms = hasattr(attention, "q_norm")
        return cls(
            index=attention.layer_idx,
            head_size=attention.head_dim,
            scale=attention.scaling,
            window=getattr(attention, "sliding_window", None),
            before_attention=_norm(layer.input_layernorm),
            query=_linear(attention.q_proj),
            key=_linear(attention.k_proj),
            value=_linear(attention.v_proj),
            query_norm=_norm(attention.q_norm) if has_norms else None,
            key_norm=_norm(attention.k_norm) if has_norms else None,
            out=_linear(attention.o_proj),
            before_mlp=_norm(layer.post_attention_layernorm),
            gate=_linear(mlp.gate_proj),
            activation=mlp.act_fn,
            up=_linear(mlp.up_proj),
            down=_linear(mlp.down_proj),
        )

    def attend(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], slots: Attention) -> Tensor:
        x = self.before_attention(hidden)
        heads = (*x.shape[:2], -1, self.head_size)
        query, key = self.query(x).view(heads), self.key(x).view(heads)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        found = slots.attend(
            self.index,
            _rotate(query, *rotation).transpose(1, 2),
            _rotate(key, *rotation).transpose(1, 2),
            self.value(x).view(heads).transpose(1, 2),
            self.scale,
            self.window,
        )
        return self.out(found.transpose(1, 2).flatten(2))

    def mlp(self, hidden: Tensor) -> Tensor:
        x = self.before_mlp(hidden)
        return self.down(self.activation(self.gate(x)).mul_(self.up(x)))


def _with_half_negated(sin: Tensor) -> Tensor:
    half = sin.shape[-1] // 2
    return torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)


def _linear(module: Any) -> Operation:
    """A layer's computation; for a plain layer, without the cost of calling its module."""
    if type(module) is not nn.Linear:
        return cast(Operation, module)
    return partial(linear, weight=module.weight, bias=module.bias)


def _norm(module: Any) -> Operation:
    """A root-mean-square norm's computation, over the last dimension."""
    weight = module.weight
    return partial(
        rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon
    )


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate by position; `sin` has its first half negated, so the halves only swap."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, dims=-1), sin)
