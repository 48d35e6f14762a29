"""Random models of 17 tokens, and draws from them."""

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rollwise.models.loading import model_path
from rollwise.sampling import Draw, draw_seed

END = 1
LIMIT = 12
PROMPTS = {"short": [5, 9], "middle": [3, 14, 4, 7, 11], "long": [12, 6, 5, 9, 13, 4, 15, 3, 7]}
KINDS = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 32}),
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    # Keys and values beyond the window leave the cache.
    "window": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
}


def make_model(kind="qwen2", seed=0, context=64, **changed):
    """A random model of 17 tokens whose next-token distributions are far from uniform."""
    torch.manual_seed(seed)
    model_class, config_class, options = KINDS[kind]
    shape = {
        "vocab_size": 17,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": context,
        "initializer_range": 0.15,
        "pad_token_id": 0,
        "eos_token_id": END,
        "bos_token_id": None,
    }
    return model_class(config_class(**shape | options | changed)).eval()


def make_tokenizer():
    """That of the built-in model: 17 tokens, 0 pads and 1 ends a response."""
    return PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))


def make_draws(count, keys=PROMPTS, seed=0):
    """`count` draws of each prompt."""
    return [Draw(key, i, draw_seed(seed, 0, key, i)) for key in keys for i in range(count)]


def complete(engine, draws, prompts=PROMPTS):
    """Everything that comes of the draws: draw -> completion."""
    engine.submit(draws, prompts)
    done = {}
    while completions := engine.wait():
        done |= {completion.draw: completion for completion in completions}
    return done


def complete_one(engine, prompts):
    """What comes of the first draw of the first prompt."""
    (outcome,) = complete(engine, make_draws(1, prompts)[:1], prompts).values()
    return outcome


def as_tokens(completions):
    return {draw: completion.tokens for draw, completion in completions.items()}


def uniforms_of(draw, count):
    """The random numbers that belong to a draw."""
    return np.random.Generator(np.random.Philox(key=draw.seed)).random(count, dtype=np.float32)
