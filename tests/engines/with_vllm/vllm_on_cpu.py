"""Makes engines of vLLM on the CPU, and says what comes of their draws."""

from dataclasses import replace

import torch
from tiny_models import END, LIMIT, PROMPTS, complete

from rollwise.engines.settings import VLLMSettings
from rollwise.engines.vllm import VLLMEngine
from rollwise.step.session import finished

CONTEXT, SLOTS = 4096, 8
SETTINGS = VLLMSettings(dtype="float32", enforce_eager=True, restarts=1)


def make_engine(folder, tokenizer, **settings):
    options = replace(SETTINGS, **settings)
    limits = (CONTEXT, LIMIT, 1.0, SLOTS)
    return VLLMEngine(str(folder), tokenizer, {END}, *limits, options)


def tokens_of(engine, draws):
    return {draw: completion.tokens for draw, completion in complete(engine, draws).items()}


@torch.no_grad()
def plain_logprobs(model, completion, temperature):
    prompt = PROMPTS[completion.draw.key]
    logits = model(torch.tensor([[*prompt, *completion.tokens]])).logits[0, len(prompt) - 1 : -1]
    chosen = torch.tensor(completion.tokens)[:, None]
    return (logits / temperature).log_softmax(dim=1).gather(1, chosen).squeeze(1).numpy()


def grade(completions):
    """A response of an even number of tokens is correct."""
    return [finished(float(len(completion.tokens) % 2 == 0)) for completion in completions]
