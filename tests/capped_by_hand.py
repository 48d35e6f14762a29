"""What `ResponseCap` does in one backward pass, one response and one layer after another."""

import numpy as np
import torch

from rollwise.training.response_cap import decoder_layers


def states_of(model, example):
    """What enters each layer and leaves the last, and log π of the whole response."""
    states, ids = [], torch.tensor([[*example.prompt, *example.response]])
    layers = decoder_layers(model)
    handles = [
        layer.register_forward_pre_hook(lambda _, args: states.append(args[0])) for layer in layers
    ]
    handles.append(layers[-1].register_forward_hook(lambda _, __, output: states.append(output)))
    logits = model(input_ids=ids).logits[0, len(example.prompt) - 1 : -1]
    for handle in handles:
        handle.remove()
    chosen = torch.tensor(example.response)[:, None]
    return states, logits.log_softmax(dim=1).gather(1, chosen).sum()


def bounded_gradient(model, examples, bounds):
    """By hand: one response at a time, layer by layer backwards, each time scaled to the bound.

    Returns:
        The gradient of the loss, and the norms seen at each place, shape (R, layers + 1).
    """
    tokens = sum(len(e.response) for e in examples)
    parameters = list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    seen = np.zeros((len(examples), len(bounds)))
    for row, example in enumerate(examples):
        states, logprob = states_of(model, example)
        output, flowing = -example.advantage * logprob, None
        for place in reversed(range(len(states))):
            *own, into = torch.autograd.grad(
                output, [*parameters, states[place]], flowing, retain_graph=True, allow_unused=True
            )
            # What reaches parameters below this place also came through it, and comes again.
            below = torch.autograd.grad(
                states[place], parameters, into, retain_graph=True, allow_unused=True
            )
            for sum_, part, again in zip(total, own, below, strict=True):
                if part is not None:
                    sum_ += (part if again is None else part - again) / tokens
            seen[row, place] = into.norm()
            scale = min(1.0, bounds[place] / seen[row, place])
            output, flowing = states[place], into * scale
        for sum_, part in zip(
            total,
            torch.autograd.grad(output, parameters, flowing, allow_unused=True),
            strict=True,
        ):
            if part is not None:
                sum_ += part / tokens
    return total, seen
