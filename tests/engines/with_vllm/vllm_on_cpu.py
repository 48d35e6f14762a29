"""Makes engines of vLLM on the CPU, and says what comes of their draws."""

from dataclasses import replace

import numpy as np
import torch
from tiny_models import END, LIMIT, PROMPTS, as_tokens, complete

from rollwise import loops
from rollwise.engines.settings import VLLMSettings
from rollwise.engines.vllm import VLLMEngine

CONTEXT, SLOTS = 4096, 8
SETTINGS = VLLMSettings(dtype="float32", enforce_eager=True, restarts=1)


def make_engine(folder, tokenizer, adapters=None, **settings):
    options = replace(SETTINGS, **settings)
    limits = (CONTEXT, LIMIT, 1.0, SLOTS)
    return VLLMEngine(str(folder), tokenizer, {END}, *limits, options, adapters)


def tokens_of(engine, draws):
    return as_tokens(complete(engine, draws))


@torch.no_grad()
def assert_drawn_from(model, responses, temperature=1.0):
    """Each log-probability is that of a plain forward pass."""
    for draw, response in responses.items():
        prompt, tokens = PROMPTS[draw.key], response.tokens
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        chosen = torch.tensor(tokens)[:, None]
        wanted = (logits / temperature).log_softmax(dim=1).gather(1, chosen).squeeze(1)
        np.testing.assert_allclose(response.logprobs, wanted, atol=1e-4)
        assert response.logprobs.dtype == np.float32


def nothing_runs(engine):
    """vLLM can drop all that it has cached only when no request uses any of it."""
    return loops.run(engine._llm.reset_prefix_cache())
