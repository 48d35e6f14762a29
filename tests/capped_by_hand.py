"""What `ResponseCap` does, one response at a time."""

import numpy as np
import torch

from rollwise.training.response_cap import decoder_layers


def bounded_gradient(model, examples, bounds):
    """The gradient of each response alone, scaled to the bound at each place on its way back.

    Returns:
        The gradient of the loss, and the norms seen at each place, shape (R, layers + 1).
    """
    layers, seen = decoder_layers(model), []

    def bound(place, states):
        def scaled(gradient):
            seen[-1][place] = norm = float(gradient.norm())
            return gradient * min(1.0, bounds[place] / norm)

        states.register_hook(scaled)

    hooks = [
        layer.register_forward_pre_hook(lambda _, args, place=place: bound(place, args[0]))
        for place, layer in enumerate(layers)
    ]
    hooks.append(layers[-1].register_forward_hook(lambda _, __, out: bound(len(layers), out)))
    model.zero_grad()
    for example in examples:
        seen.append(np.zeros(len(layers) + 1))
        logits = model(torch.tensor([[*example.prompt, *example.response]])).logits
        logprobs = logits[0, len(example.prompt) - 1 : -1].log_softmax(dim=1)
        chosen = logprobs.gather(1, torch.tensor(example.response)[:, None])
        (-example.advantage * chosen.sum()).backward()
    for hook in hooks:
        hook.remove()
    tokens = sum(len(e.response) for e in examples)
    return [p.grad / tokens for p in model.parameters()], np.array(seen)
