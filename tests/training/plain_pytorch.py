"""Probabilities and gradients of a response by plain PyTorch."""

import copy

import torch


def plain_distributions(model, example, temperature=1.0):
    """log π of every token at each place of the response, shape (T, V)."""
    ids = torch.tensor([[*example.prompt, *example.response.tokens]])
    logits = model(ids).logits[0, len(example.prompt) - 1 : -1] / temperature
    return logits.log_softmax(dim=1)


def plain_logprobs(model, example, temperature=1.0):
    """log π of the response's tokens, shape (T,)."""
    chosen = torch.tensor(example.response.tokens)[:, None]
    return plain_distributions(model, example, temperature).gather(1, chosen).squeeze(1)


def gradient_of(loss, model):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def plain_gradient(model, examples, temperature=1.0):
    """−∇ Σ_i A_i Σ_t log π(t) / Σ_i T_i: REINFORCE, averaged over all tokens."""
    model = copy.deepcopy(model)
    gains = [e.advantage * plain_logprobs(model, e, temperature).sum() for e in examples]
    return gradient_of(-sum(gains) / sum(e.response.drawn for e in examples), model)
