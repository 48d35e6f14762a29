"""Stand-ins for what `AsyncGRPOTrainer` has on GPUs: a vLLM server, its weights, and a kernel."""

import sys
import threading
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "engines"))

from completions_server import CompletionsServer

from rollwise.config import ModelSettings
from rollwise.engines.transformers import TransformersEngine
from rollwise.models.loading import load_model

LONGEST = 16


class PolicyOfServer(CompletionsServer):
    """Serves a copy of the built-in model, which is sent weights as TRL's protocol has it.

    Attributes:
        transfers: What was called, in order.
    """

    def __init__(self):
        self.model, tokenizer = load_model(ModelSettings(cpu_threads=1))
        self.running, self.transfers = threading.Event(), []
        super().__init__(TransformersEngine(self.model, tokenizer, LONGEST, batch_size=1))
        self.running.set()

    def complete(self, prompt, seed):
        self.running.wait()
        return super().complete(prompt, seed)

    # TRL's `WeightTransferProtocol`.

    def init_weight_transfer(self):
        self.transfers.append("init")

    def pause(self):
        self.running.clear()

    def send_weights(self, iterator):
        with self._lock, torch.no_grad():
            self.transfers.append("weights")
            known = dict(self.model.named_parameters())
            for name, value in iterator:
                known[name].copy_(value)
            self.engine.load_weights({})

    def resume(self):
        self.running.set()

    def destroy(self):
        self.transfers.append("destroy")


def flash_attn_varlen_func(
    query, key, value, starts_q, starts_k, longest_q, longest_k, softmax_scale, causal, window_size
):
    """What FlashAttention's function of this name computes, a sequence at a time."""
    parts = []
    for i in range(len(starts_q) - 1):
        q = query[starts_q[i] : starts_q[i + 1]]
        k, v = (x[starts_k[i] : starts_k[i + 1]] for x in (key, value))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).transpose(0, 1) for x in (k, v))
        ahead = torch.ones(q.shape[0], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[0])
        attended = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1), k, v, attn_mask=ahead, scale=softmax_scale
        )
        parts.append(attended.transpose(0, 1))
    return torch.cat(parts)
