"""How the tokens in slots are run through a model: by its own code, or by less for known ones.

A step of a small model is so short that half of it would go into the calls of its modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm
from transformers import PreTrainedModel

from rollwise.engines.attention import Attention
from rollwise.engines.local import is_compiled

Linear = Callable[[Tensor], Tensor]


class Forward(Protocol):
    """Runs tokens through a model, with the attention of slots."""

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Attention, keep: int | Tensor = 1
    ) -> Tensor:
        """Compute logits.

        Args:
            ids: Token ids, shape (B, T).
            positions: Of these tokens in their rows, shape (B, T).
            slots: Attends.
            keep: How many of the last tokens to compute logits of, or the indices of which.

        Returns:
            Shape (B, kept tokens, V).
        """
        ...


def forward_of(twin: PreTrainedModel) -> Forward:
    """Choose how to run `twin`, a model with the attention of slots."""
    base = twin.get_base_model() if hasattr(twin, "get_base_model") else twin  # of adapters
    return Decoder(base, is_compiled(twin)) if type(base).__name__ in KNOWN else OwnCode(twin)


@dataclass(frozen=True)
class OwnCode:
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
    """What the `KNOWN` architectures compute, in few operations.

    Linear layers stay the model's modules, for they may hold adapters or be quantised.
    """

    def __init__(self, model: PreTrainedModel, compiled: bool) -> None:
        operations = _compiled_operations() if compiled else _Operations(_rms_norm, _rotate)
        decoder: Any = model.model
        self._embed, self._rotary, self._head = (
            decoder.embed_tokens,
            decoder.rotary_emb,
            _linear(model.lm_head),
        )
        self._layers = [_Layer.of(layer, operations) for layer in decoder.layers]
        self._norm = _Norm.of(decoder.norm, operations)

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
class _Norm:
    """Root-mean-square norm over the last dimension."""

    weight: Tensor
    epsilon: float
    compute: Callable[[Tensor, Tensor, float], Tensor]

    @classmethod
    def of(cls, module: Any, operations: "_Operations") -> Self:
        return cls(module.weight, module.variance_epsilon, operations.rms_norm)

    def __call__(self, x: Tensor) -> Tensor:
        return self.compute(x, self.weight, self.epsilon)


@dataclass(frozen=True)
class _Layer:
    """A layer's modules."""

    index: int
    head_size: int
    scale: float
    window: int | None
    before_attention: _Norm
    query: Linear
    key: Linear
    value: Linear
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: Linear
    before_mlp: _Norm
    gate: Linear
    activation: Callable[[Tensor], Tensor]
    up: Linear
    down: Linear
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]

    @classmethod
    def of(cls, layer: Any, operations: "_Operations") -> Self:
        attention, mlp = layer.self_attn, layer.mlp
        has_norms = hasattr(attention, "q_norm")
        return cls(
            index=attention.layer_idx,
            head_size=attention.head_dim,
            scale=attention.scaling,
            window=getattr(attention, "sliding_window", None),
            before_attention=_Norm.of(layer.input_layernorm, operations),
            query=_linear(attention.q_proj),
            key=_linear(attention.k_proj),
            value=_linear(attention.v_proj),
            query_norm=_Norm.of(attention.q_norm, operations) if has_norms else None,
            key_norm=_Norm.of(attention.k_norm, operations) if has_norms else None,
            out=_linear(attention.o_proj),
            before_mlp=_Norm.of(layer.post_attention_layernorm, operations),
            gate=_linear(mlp.gate_proj),
            activation=mlp.act_fn,
            up=_linear(mlp.up_proj),
            down=_linear(mlp.down_proj),
            rotate=operations.rotate,
        )

    def attend(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], slots: Attention) -> Tensor:
        x = self.before_attention(hidden)
        heads = (*x.shape[:2], -1, self.head_size)
        query, key = self.query(x).view(heads), self.key(x).view(heads)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        found = slots.attend(
            self.index,
            self.rotate(query, *rotation).transpose(1, 2),
            self.rotate(key, *rotation).transpose(1, 2),
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


def _linear(module: Any) -> Linear:
    """A layer's computation, without what a call of the module costs where it is a plain one."""
    if type(module) is not nn.Linear:
        return cast(Linear, module)
    return partial(linear, weight=module.weight, bias=module.bias)


class _Operations(NamedTuple):
    """What is computed by `torch`, or compiled."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]


def _compiled_operations() -> _Operations:
    from rollwise.engines import kernels  # Numba, which only a CPU takes, takes long to import

    return _Operations(kernels.rms_norm, kernels.rotate)


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return rms_norm(x, weight.shape, weight, epsilon)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate by position; `sin` has its first half negated, so that the halves need but swap."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, dims=-1), sin)
