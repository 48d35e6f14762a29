"""States that can be saved without pickle, and indices of prompts."""

import logging
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rollwise.plugins import calling, wrong_result

log = logging.getLogger(__name__)

Indices = NDArray[np.int64]
"""Indices of prompts, in key order from 0."""

State = dict[str, "np.ndarray[Any, Any] | int | float | str"]
"""The state of a sampler or a belief: flat, of arrays and scalars, to be saved without pickle."""


def from_state(state: State, name: str) -> Any:
    """Take a value out of a state; a `ValueError` names what the state lacks."""
    if name not in state:
        raise ValueError(f"the state lacks {name!r}; it has {', '.join(sorted(state))}")
    return state[name]


def array_from_state(
    state: State, name: str, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Copy an array out of a state; a `ValueError` if it is of another number of prompts."""
    values = np.array(from_state(state, name), dtype=dtype)
    if values.shape != shape:
        raise ValueError(
            f"the state is of a sampler over {len(np.atleast_1d(values))} prompts, this one has "
            f"{shape[0]}: {name!r} has shape {values.shape}"
        )
    return values


def saveable(owner: Any) -> State:
    """Ask a sampler or a belief for its state; a `PluginError` names one that cannot be saved."""
    with calling(owner, "state_dict"):
        state: Any = owner.state_dict()
    if not isinstance(state, dict) or not all(map(_can_be_saved, state.values())):
        raise wrong_result(owner, "state_dict", "a dict of arrays, numbers and texts", state)
    return state


def metrics_of(owner: Any) -> dict[str, float]:
    """Ask a sampler or a belief for its metrics; a `PluginError` names one without figures."""
    with calling(owner, "metrics"):
        found: Any = owner.metrics()
    if not isinstance(found, dict) or not all(isinstance(v, Real) for v in found.values()):
        raise wrong_result(owner, "metrics", "a dict of numbers by their names", found)
    return found


def state_of(owner: Any, names: Iterable[str]) -> State:
    """Return attributes, by their names without a leading underscore; arrays as copies."""
    if isinstance(names, str):
        raise wrong_result(owner, "kept", "a tuple of names", names)
    if unknown := [name for name in names if not _can_be_saved(getattr(owner, name, None))]:
        due = "names of arrays, numbers and texts, attributes that it has"
        raise wrong_result(owner, "kept", due, unknown[0])
    values = {name.removeprefix("_"): getattr(owner, name) for name in names}
    return {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in values.items()}


def _can_be_saved(value: object) -> bool:
    kinds = (np.ndarray, np.generic, int, float, str)
    return isinstance(value, kinds) and np.asarray(value).dtype.kind in "biufU"


def load_into(owner: Any, names: Iterable[str], state: State) -> None:
    """Set attributes to what `state_of` returned; a `ValueError` if one does not fit, before any.

    They keep the type and the shape that they have.
    """
    found: dict[str, Any] = {}
    for name in names:
        held, key = getattr(owner, name), name.removeprefix("_")
        if isinstance(held, np.ndarray):
            found[name] = array_from_state(state, key, held.shape, held.dtype)
        else:
            found[name] = type(held)(from_state(state, key))
    vars(owner).update(found)


def part_of_state(state: State, prefix: str) -> State:
    """Return what stands under names that begin with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def refuse_or_warn(owner: str, state: State) -> None:
    """Load a state where nothing is kept: refuse a filled one, warn about an empty one."""
    if state:
        held = ", ".join(sorted(state))
        raise ValueError(f"{owner} has no load_state_dict, but the state holds {held}")
    log.warning("%s keeps no state: it starts over without what it had learned", owner)
