"""Try every causal language model of `transformers`: tiny, random, drawn from and learned from.

For each architecture a tiny model is made from its configuration. The log-probabilities of what
the built-in engine draws, those of the learner, and the learner's gradient are compared with plain
forward passes of one sequence at a time. They agree, or the model is refused before a run.

    .venv/bin/python scripts/try_architectures.py [NAME ...]

Prints a table, and ends with one line of JSON: the number of architectures of each outcome.
"""

import argparse
import asyncio
import contextlib
import io
import json
import logging
import multiprocessing
import re
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rollwise import loops
from rollwise.engines.probe import plain_logprobs
from rollwise.engines.transformers import TransformersEngine
from rollwise.errors import RollwiseError
from rollwise.models.loading import load_tokenizer, model_path
from rollwise.sampling import Draw, draw_seed
from rollwise.step import Example, Response
from rollwise.training.forward import Forward

SECONDS = 60
"""The most time for one architecture."""

MOST = 5e7
"""The most parameters of a model that is tried."""

WORDS, END = 17, 1
"""Tokens, and the one that ends a response: those of the built-in tokenizer."""

CLOSE = 5e-3
"""The largest difference between log-probabilities that agree, and, of the largest one, between
gradients. Most mistakes are a hundred times larger, and rounding is a hundred times smaller."""

DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

SIZES = (
    (r"vocab", WORDS),
    (r"index_topk$", 64),  # attention to all tokens; fewer than the context are refused
    (r"position|n_ctx|max_seq_len|max_length|mem_len", 64),
    (r"window", 6),
    (r"top_?k|per_tok|n_groups|topk_group|n_group", 2),
    (r"(num|n)_.*kv_heads|key_value_heads|query_groups|num_key_heads", 2),
    (r"experts$|expert_num|n_heads|num_.*heads|attention_heads|n_head|num_value_heads", 4),
    (r"layers?$|n_layer|num_blocks", 2),
    (r"rank|head_dim|head_size|_headdim|d_head|chunk|_dim$|kv_channels|state|rotary|groups", 8),
    (r"size|width|n_embd|d_model|d_ssm|n_inner|ffn|d_", 32),
)
"""Pattern of a setting's name -> its value; the first that is found in the name counts."""

ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
}

CHANGED: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_d_head": 16, "attn_layer_indices": [1]},
    "bailing_hybrid": {"n_group": 1, "topk_group": 1, "layer_group_size": 2},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "cohere2_moe": {"logit_scale": 1.0},
    "dots1": ROUTED | {"num_key_value_heads": 4},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "deepseek_v2": ROUTED,
    "dots3_note": {"num_key_value_heads": 4},
    "dots3_note_text": {"num_key_value_heads": 4},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2},
    "gemma3n_text": {"vocab_size_per_layer_input": WORDS, "hidden_size_per_layer_input": 8},
    "granitemoehybrid": {
        "mamba_d_head": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "num_local_experts": 4,
    },
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "jamba": {"attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"expand": 1},
    "ministral": {"head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "lru_width": 32,
        "num_key_value_heads": 1,
        "w_init_variance_scale": 90.0,
    },
    "reformer": {
        "is_decoder": True,
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "attn_layers": ["local", "lsh"],
        "num_buckets": 4,
    },
    "xlm": {"embed_init_std": 1.0, "causal": True},
    "xlstm": {"head_dim": 8, "num_heads": 4, "embedding_dim": 32},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"attention_hidden_size": 64, "attention_head_dim": 16, "num_key_value_heads": 4},
}
"""What an architecture needs beyond that."""


def tiny_config(name: str, **changed: Any) -> PretrainedConfig:
    """Return a configuration of an architecture with a few thousand parameters."""
    kind = type(CONFIG_MAPPING[name]().get_text_config(decoder=True))
    usual = {key: value for key, value in kind().to_dict().items() if not key.startswith("_")}
    depth = next((usual[key] for key in DEPTHS if isinstance(usual.get(key), int)), 0)
    lists = {k: v for k, v in usual.items() if isinstance(v, list) and len(v) == depth > 4}
    layers = max([2, *map(_layers_with_all, lists.values())])
    sizes = {
        key: _size(key)
        for key, value in usual.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 2 and _size(key)
    }
    if "kv_lora_rank" in usual:  # latent attention
        sizes |= {"num_key_value_heads": 4}
        sizes = {k: v for k, v in sizes.items() if k not in ("head_dim", "qk_head_dim")}
    for key in ("sliding_window", "keep_window_size"):  # where it is the context, it stays so
        if usual.get(key, 0) == usual.get("max_position_embeddings"):
            sizes[key] = 64
    depths = {key: layers for key in DEPTHS if key in usual}
    own = {key: value[:layers] for key, value in lists.items()}
    ids = {"pad_token_id": 0, "eos_token_id": END, "bos_token_id": 2}
    spread = {key: 0.3 for key in ("initializer_range", "init_std") if key in usual}
    return kind(**sizes | depths | own | ids | spread | CHANGED.get(name, {}) | changed)


def _size(key: str) -> int | None:
    return next((size for pattern, size in SIZES if re.search(pattern, key)), None)


def _layers_with_all(kinds: list[Any]) -> int:
    """Return how many first layers hold all kinds of layers, at most 12."""
    try:
        return min(12, 1 + max(map(kinds.index, set(kinds))))
    except TypeError:
        return 2


PROMPTS = {
    "short": [5, 9],
    "middle": [3, 14, 4, 7, 11],
    "long": [12, 6, 5, 9, 13, 4, 15, 3, 7, 8, 10, 6],
}
ADVANTAGES = (1.0, -0.5, 2.0, 0.3, -1.0, 0.7)

Outcome = tuple[str, str]
"""What came of an architecture, in a word, and what there is to say of it."""


def examine(name: str) -> Outcome:
    """Draw from and learn from a model of an architecture, and compare with plain passes."""
    try:
        kind, _, decoder = name.partition("+")
        config = tiny_config(kind, **({"is_decoder": True} if decoder else {}))
        with torch.device("meta"):
            count = AutoModelForCausalLM.from_config(config).num_parameters()
        if count > MOST:
            return "not tried", f"no tiny configuration: {count / 1e6:,.0f} M parameters"
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            plain_logprobs(model, [5, 9], [3, 14])
    except Exception as error:  # a configuration may fail in any way
        return "not tried", f"no tiny configuration: {type(error).__name__}: {error}"
    try:
        examples = draw(model)
        differences = [drawing_error(model, examples), *learning_errors(model, examples)]
    except RollwiseError as error:
        return "refused", str(error)
    worst = max(differences)
    found = "agrees" if worst < CLOSE else "DIFFERS"
    return found, " ".join(f"{each:.0e}" for each in differences)


def draw(model: PreTrainedModel) -> list[Example]:
    """Draw responses to prompts of three lengths with the built-in engine; return at most six.

    A response with a token that pads is no text: several models count no position for it.
    """
    tokenizer = load_tokenizer(model_path("running-sums"))
    engine = TransformersEngine(model, tokenizer, 9)
    draws = [Draw(key, i, draw_seed(0, 0, key, i)) for i in range(8) for key in sorted(PROMPTS)]

    async def all_of() -> list[Response]:
        return await asyncio.gather(*(engine.complete(d, PROMPTS[str(d.key)]) for d in draws))

    found = zip(draws, loops.run(all_of()), strict=True)
    texts = [(draw.key, response) for draw, response in found if 0 not in response.tokens]
    return [
        Example(PROMPTS[str(key)], response, advantage)
        for (key, response), advantage in zip(texts, ADVANTAGES, strict=False)
    ]


@torch.no_grad()
def drawing_error(model: PreTrainedModel, examples: list[Example]) -> float:
    """Return by how much the engine's log-probabilities are off."""
    return max(float(np.abs(plain(model, e).numpy() - e.response.logprobs).max()) for e in examples)


def plain(model: PreTrainedModel, example: Example) -> torch.Tensor:
    """Return the log-probabilities of a response by a plain pass."""
    return plain_logprobs(model, example.prompt, example.response.tokens)


def learning_errors(model: PreTrainedModel, examples: list[Example]) -> tuple[float, float]:
    """Return by how much the learner's log-probabilities, and gradients, are off."""
    run = Forward(model, 1.0, packed=True)
    found = run(examples, with_entropy=False)[0]
    wanted = [plain(model, e) for e in examples]
    weights = torch.cat(
        [torch.full_like(w, e.advantage) for w, e in zip(wanted, examples, strict=True)]
    )
    gradients = []
    for logprobs in (found, torch.cat(wanted)):
        model.zero_grad()
        torch.autograd.backward((weights * logprobs).sum())
        own = [p.grad for p in model.parameters() if p.grad is not None]
        gradients.append(torch.cat([gradient.flatten() for gradient in own]))
    difference = (gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max()
    gap = (found - torch.cat(wanted)).detach().abs().max()
    return float(gap), float(difference)


def in_own_process(work: Callable[[str], Outcome], name: str) -> Outcome:
    """Examine an architecture in a process of its own, which may crash or hang."""
    context = multiprocessing.get_context("fork")  # the libraries are loaded once
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, name, sender))
    process.start()
    sender.close()
    outcome = "FAILS", f"took more than {SECONDS} s"
    if receiver.poll(SECONDS):
        try:
            outcome = receiver.recv()
        except EOFError:
            outcome = "FAILS", "its process died"
    process.kill()
    process.join()
    return outcome


def _send(work: Callable[[str], Outcome], name: str, sender: Connection) -> None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # some of the models print
            outcome = work(name)
    except Exception as error:  # what is looked for: neither an agreement nor a refusal
        outcome = "FAILS", f"{type(error).__name__}: {error}"
    sender.send(outcome)


def architectures() -> list[str]:
    """Return all names, and once more, with `+decoder`, those of encoders that can be decoders."""
    encoders = (
        name
        for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if getattr(CONFIG_MAPPING[name], "is_decoder", None) is False
    )
    return sorted([*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *(f"{name}+decoder" for name in encoders)])


def main() -> int:
    """Print a row for each architecture; returns 1 if one neither agrees nor is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=architectures())
    names = parser.parse_args().names
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for name in names:
        found, detail = in_own_process(examine, name)
        counts[found] += 1
        print(f"{name:28} {found:10} {' '.join(detail.split())[:150]}", flush=True)
    print(json.dumps(counts))
    return 1 if counts["DIFFERS"] or counts["FAILS"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
