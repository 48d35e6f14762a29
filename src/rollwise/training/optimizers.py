"""Saves and restores an optimizer's state without pickle."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer


def optimizer_state(optimizer: Optimizer, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """Name an optimizer's tensors by the index of their parameter; add torch's random state."""
    tensors = {
        f"{index}.{name}": torch.as_tensor(value).contiguous()
        for index, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }
    return tensors | {"random_state": torch.get_rng_state()}


def load_optimizer_state(
    optimizer: Optimizer, parameters: Sequence[Tensor], tensors: dict[str, Tensor]
) -> None:
    """Restore what `optimizer_state` returned, torch's random state included."""
    random_state = tensors.pop("random_state")
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, part = name.split(".")
        state.setdefault(int(index), {})[part] = value
    shapes = {index: parameter.shape for index, parameter in enumerate(parameters)}
    if any(parts["exp_avg"].shape != shapes.get(index) for index, parts in state.items()):
        raise ValueError("the optimizer's state is of another model")
    torch.set_rng_state(random_state)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
