"""Random models of 17 tokens, and draws from them."""

import asyncio

import numpy as np
import torch
import transformers

from rollwise import loops
from rollwise.models.loading import model_path
from rollwise.sampling import Draw, draw_seed
from rollwise.step import LostDraw

# The models here are so small that a second thread for a matrix product only waits: on busy cores
# ten times as long as the product takes.
torch.set_num_threads(1)

END = 1
LIMIT = 12
PROMPTS = {"short": [5, 9], "middle": [3, 14, 4, 7, 11], "long": [12, 6, 5, 9, 13, 4, 15, 3, 7]}
KINDS = {
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "llama": ("Llama", {}),
    # Keys and values beyond the window leave the cache.
    "window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
}


def make_model(kind="qwen2", seed=0, context=64, **changed):
    """A random model of 17 tokens whose next-token distributions are far from uniform."""
    torch.manual_seed(seed)
    name, options = KINDS[kind]
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
    config = getattr(transformers, f"{name}Config")(**shape | options | changed)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def make_tokenizer():
    """That of the built-in model: 17 tokens, 0 pads and 1 ends a response."""
    return transformers.PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))


def make_draws(count, keys=PROMPTS, seed=0):
    """`count` draws of each prompt."""
    return [Draw(key, i, draw_seed(seed, 0, key, i)) for key in keys for i in range(count)]


def complete(engine, draws, prompts=PROMPTS):
    """What comes of draws: draw -> response, or the `LostDraw` that it raised."""

    async def all_of():
        ends = (engine.complete(draw, prompts[draw.key]) for draw in draws)
        return await asyncio.gather(*ends, return_exceptions=True)

    found = dict(zip(draws, loops.run(all_of()), strict=True))
    for end in found.values():
        if isinstance(end, Exception) and not isinstance(end, LostDraw):
            raise end
    return found


def complete_one(engine, prompts):
    """What comes of the first draw of the first prompt."""
    (found,) = complete(engine, make_draws(1, prompts)[:1], prompts).values()
    return found


def as_tokens(responses):
    return {draw: response.tokens for draw, response in responses.items()}


def uniforms(draw, count):
    """The random numbers that belong to a draw."""
    return 1 - np.random.Generator(np.random.Philox(key=draw.seed)).random(count)
