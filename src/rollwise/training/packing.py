"""Responses one after another in a single row, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rollwise.engines.attention import LayerInputs, causal_attention
from rollwise.step.response import Example
from rollwise.training.micro_batches import Batch, drawn_indices

varlen_attn: Any = None
"""torch's attention for segments; releases before 2.13 may lack some of its arguments."""
if torch.__version__ >= "2.13":
    from torch.nn.attention.varlen import varlen_attn

KNOWN = {
    "GraniteForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Olmo2ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "SmolLM3ForCausalLM",
}
"""Architectures whose tokens interact only in attention, and see earlier tokens or a window."""


@dataclass(frozen=True)
class Segments:
    """Where the responses of a packed row are, and causal attention within each of them.

    Attributes:
        lengths: Tokens of each response with its prompt; their sum is the length of the row.
        device: Of the row.
    """

    lengths: tuple[int, ...]
    device: torch.device

    @cached_property
    def ends(self) -> Tensor:
        """0, and where each segment ends, shape (R + 1,), as kernels want it."""
        ends = np.cumsum([0, *self.lengths], dtype=np.int32)
        return torch.from_numpy(ends).to(self.device)

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend from each token to those before it in its segment."""
        sets = inputs.query, inputs.key, inputs.value
        if (precision := _kernel_precision(inputs.query)) is not None:
            return self._attend_by_kernel([s.to(precision) for s in sets], inputs)
        parts = zip(*(s.split(self.lengths, dim=2) for s in sets), strict=True)
        found = [
            causal_attention(inputs._replace(query=query, key=key, value=value))
            for query, key, value in parts
        ]
        return torch.cat(found, dim=2)

    def _attend_by_kernel(self, sets: Sequence[Tensor], inputs: LayerInputs) -> Tensor:
        """Attend by flash attention for segments of various lengths."""
        longest, window = max(self.lengths), inputs.window
        found: Tensor = varlen_attn(
            *(states[0].transpose(0, 1) for states in sets),
            self.ends,
            self.ends,
            longest,
            longest,
            scale=inputs.scale,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=inputs.query.shape[1] != inputs.key.shape[1],
        )
        return found.transpose(0, 1)[None]


def _kernel_precision(query: Tensor) -> torch.dtype | None:
    """Return the precision in which the kernel attends here; None if it cannot.

    In autocast, queries and keys come in float32, because rotary embeddings multiply them by
    cosines in the precision of the hidden states.
    """
    size, kind = query.shape[-1], query.device.type
    if varlen_attn is None or size % 8 or size > 256 or not _has_kernel(query.device):
        return None
    autocast = torch.is_autocast_enabled(kind)
    precision = torch.get_autocast_dtype(kind) if autocast else query.dtype
    return precision if precision in (torch.bfloat16, torch.float16) else None


def _has_kernel(device: torch.device) -> bool:
    """Return whether flash attention runs on a device: NVIDIA's from Ampere on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def can_pack(model: PreTrainedModel) -> bool:
    """Return whether a model's own code is known to keep the responses of a packed row apart."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # of adapters
    return type(base).__name__ in KNOWN


def pack(examples: Sequence[Example], device: torch.device) -> Batch:
    """Put responses, each after its prompt, one after another into a single row."""
    lengths = np.array([len(example) for example in examples])
    ids = torch.tensor(
        [i for e in examples for i in (*e.prompt, *e.response.tokens)], device=device
    )
    positions = np.concatenate([np.arange(length) for length in lengths])
    begins = np.cumsum(lengths) - [len(example.response.tokens) for example in examples]
    chosen = drawn_indices(examples, begins).to(device)
    inputs = {
        "input_ids": ids[None],
        "position_ids": torch.from_numpy(positions).to(device)[None],
        "own_attention": Segments(tuple(lengths.tolist()), device),
    }
    return Batch(inputs, chosen - 1, ids[chosen])
