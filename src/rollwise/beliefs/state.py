"""States of samplers and beliefs: dictionaries of arrays and scalars, saved without pickle."""

import logging
from collections.abc import Sequence
from copy import copy
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result

log = logging.getLogger(__name__)

Indices = NDArray[np.int64]
"""Indices of prompts, in key order from 0."""

State = dict[str, "np.ndarray[Any, Any] | int | float | str"]
"""The state of a sampler or a belief, by the names of the attributes that it was read from."""


def can_be_saved(value: object) -> bool:
    """Return whether a value is an array of numbers, a number or a text."""
    kinds = (np.ndarray, np.generic, int, float, str)
    return isinstance(value, kinds) and np.asarray(value).dtype.kind in "biufU"


def saveable(owner: Any) -> State:
    """Ask a sampler or a belief for its state; a `PluginError` names one that cannot be saved."""
    state: Any = owner.state_dict()
    if not isinstance(state, dict) or not all(map(can_be_saved, state.values())):
        raise wrong_result(owner, "state_dict", "a dict of arrays, numbers and texts", state)
    return state


def metrics_of(owner: Any) -> dict[str, float]:
    """Ask a sampler or a belief for its metrics; a `PluginError` names one without figures."""
    found: Any = owner.metrics()
    if not isinstance(found, dict) or not all(isinstance(v, Real) for v in found.values()):
        raise wrong_result(owner, "metrics", "a dict of numbers by their names", found)
    return {name: float(value) for name, value in found.items()}


def state_of(owner: Any, paths: Sequence[str]) -> State:
    """Return copies of the attributes at these paths, such as `_level` or `_epochs.order`."""
    state: State = {}
    for path in paths:
        value: Any = getattr(*_place(owner, path), None)
        if not can_be_saved(value):
            due = "a tuple of names of arrays, numbers and texts, attributes that it has"
            raise wrong_result(owner, "kept", due, paths if isinstance(paths, str) else path)
        state[path.removeprefix("_")] = copy(value)
    return state


def values_in(owner: Any, paths: Sequence[str], state: State) -> list[tuple[Any, str, Any]]:
    """Return what a state holds for these paths: the arguments of `setattr` for each.

    Raises:
        ValueError: A value is missing, or an array has another shape.
    """
    found = []
    for path in paths:
        holder, name = _place(owner, path)
        own, key = getattr(holder, name), path.removeprefix("_")
        value = from_state(state, key)
        if np.shape(value) != np.shape(own):
            other = f"{key!r} has shape {np.shape(value)}, not {np.shape(own)}"
            raise ValueError(f"the state belongs to other prompts: {other}")
        of_arrays = isinstance(own, np.ndarray)
        value = np.array(value, dtype=own.dtype) if of_arrays else type(own)(value)
        found.append((holder, name, value))
    return found


def from_state(state: State, name: str) -> Any:
    """Take a value out of a state; a `ValueError` names what the state lacks."""
    if name not in state:
        raise ValueError(f"the state lacks {name!r}; it has {', '.join(sorted(state))}")
    return state[name]


def check_same(state: State, own: State, of: str) -> None:
    """Refuse (a `ValueError`) a state with other values of `own`: it is `of` something else."""
    for name, value in own.items():
        if (found := from_state(state, name)) != value:
            raise ValueError(f"the state is of {of}: its {name} is {found!r}, not {value!r}")


def refuse_or_warn(owner: str, state: State) -> None:
    """Load a state where nothing is kept: refuse a filled one, warn about an empty one."""
    if state:
        held = ", ".join(sorted(state))
        raise ValueError(f"{owner} has no load_state_dict, but the state holds {held}")
    log.warning("%s has no saved state: it starts over", owner)


def _place(owner: Any, path: str) -> tuple[Any, str]:
    """Return the object that has the attribute at the end of a path, and its name."""
    *parts, name = path.split(".")
    for part in parts:
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part, None)
    return owner, name
