"""Makes the optimizer that the settings name, and saves and restores its state without pickle."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rollwise.config import LearnerSettings
from rollwise.errors import ConfigError

NOT_SAVED = frozenset({"qmap1", "qmap2"})
"""Tensors of an optimizer's state that are the same constants for all parameters."""


def make_optimizer(
    parameters: Sequence[Tensor], settings: LearnerSettings
) -> torch.optim.Optimizer:
    """Make the optimizer that `learner.optimizer` names.

    In 8 bits AdamW's two moments are quantized in blocks of 256 values (Dettmers et al. 2021,
    *8-bit Optimizers via Block-wise Quantization*, section 2), except in tensors of fewer than
    4,096 values. Paged ones leave the GPU where something else needs the room; on a CPU they are
    ordinary memory.

    Raises:
        ConfigError: bitsandbytes is needed and not installed.
    """
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, rate, weight_decay=decay)
    try:
        from bitsandbytes import optim
    except ImportError as error:
        raise ConfigError(
            f"learner.optimizer = {settings.optimizer!r} needs bitsandbytes: pip install "
            f"'rollwise[bitsandbytes]', or set it to 'adamw' ({error})"
        ) from None
    kind: Any = optim.AdamW32bit if settings.optimizer.endswith("32bit") else optim.AdamW8bit
    paged = settings.optimizer.startswith("paged") and parameters[0].device.type != "cpu"
    optimizer: torch.optim.Optimizer = kind(parameters, rate, weight_decay=decay, is_paged=paged)
    return optimizer


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Name an optimizer's tensors by the index of their parameter; add torch's random state."""
    tensors = {
        f"{index}.{name}": torch.as_tensor(value).contiguous()
        for index, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
        if name not in NOT_SAVED
    }
    return tensors | {"random_state": torch.get_rng_state()}


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], tensors: dict[str, Tensor]
) -> None:
    """Restore what `optimizer_state` returned, torch's random state included.

    Raises:
        ValueError, KeyError: The state is broken, of another model or of another optimizer.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name != "random_state":
            index, part = name.split(".")
            state.setdefault(int(index), {})[part] = value
    blockwise = hasattr(optimizer, "init_state")  # bitsandbytes
    moment = "state1" if blockwise else "exp_avg"
    if any(moment not in parts for parts in state.values()):
        raise ValueError("the optimizer's state is of another optimizer: see `learner.optimizer`")
    shapes = {index: parameter.shape for index, parameter in enumerate(parameters)}
    if any(parts[moment].shape != shapes.get(index) for index, parts in state.items()):
        raise ValueError("the optimizer's state is of another model")
    torch.set_rng_state(tensors["random_state"])
    if blockwise:
        _fill_states(optimizer, parameters, state)
        return
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


@torch.no_grad()
def _fill_states(
    optimizer: Any, parameters: Sequence[Tensor], state: dict[int, dict[str, Tensor]]
) -> None:
    """Fill the states of bitsandbytes in place, so that paged ones stay paged."""
    [group] = optimizer.param_groups
    for index, parts in state.items():
        parameter = parameters[index]
        optimizer.init_state(group, parameter, 0, index)
        own = optimizer.state[parameter]
        own["step"] = int(parts.pop("step"))
        if own.keys() - NOT_SAVED - {"step"} != parts.keys() or any(
            own[name].dtype != value.dtype for name, value in parts.items()
        ):
            raise ValueError(
                "the optimizer's state is of another optimizer: see `learner.optimizer`"
            )
        for name, value in parts.items():
            own[name].copy_(value)
