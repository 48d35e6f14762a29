"""States that can be saved without pickle, and indices of prompts."""

import logging
from collections.abc import Iterable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result

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


def saveable(owner: Any) -> State:
    """Ask a sampler or a belief for its state; a `PluginError` names one that cannot be saved."""
    state: Any = owner.state_dict()
    if not isinstance(state, dict) or not all(map(_can_be_saved, state.values())):
        raise wrong_result(owner, "state_dict", "a dict of arrays, numbers and texts", state)
    return state


def metrics_of(owner: Any) -> dict[str, float]:
    """Ask a sampler or a belief for its metrics; a `PluginError` names one without figures."""
    found: Any = owner.metrics()
    if not isinstance(found, dict) or not all(isinstance(v, Real) for v in found.values()):
        raise wrong_result(owner, "metrics", "a dict of numbers by their names", found)
    return {name: float(value) for name, value in found.items()}


class Kept:
    """Something with a state.

    Attributes:
        kept: Its attributes that a resumed run needs: arrays, numbers, texts, or others like it.
        identity: Those of them that a state must share to fit.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    identity: ClassVar[tuple[str, ...]] = ()


def state_of(owner: Any, names: Iterable[str]) -> State:
    """Return attributes, by their names without a leading underscore; arrays as copies."""
    if isinstance(names, str):
        raise wrong_result(owner, "kept", "a tuple of names", names)
    state: State = {}
    for name in names:
        value: Any = getattr(owner, name, None)
        key = name.removeprefix("_")
        if isinstance(value, Kept):
            state |= named_under(key, state_of(value, value.kept))
        elif _can_be_saved(value):
            state[key] = value.copy() if isinstance(value, np.ndarray) else value
        else:
            due = "names of arrays, numbers and texts, attributes that it has"
            raise wrong_result(owner, "kept", due, name)
    return state


def _can_be_saved(value: object) -> bool:
    kinds = (np.ndarray, np.generic, int, float, str)
    return isinstance(value, kinds) and np.asarray(value).dtype.kind in "biufU"


def values_in(
    owner: Any, names: Iterable[str], state: State, prefix: str = ""
) -> list[tuple[Any, dict[str, Any]]]:
    """Find what `state_of` returned: the values of each object; a `ValueError` if one is unfit.

    They have the types and shapes of the attributes, which do not change yet.
    """
    found: dict[str, Any] = {}
    parts = [(owner, found)]
    for name in names:
        held, key = getattr(owner, name), prefix + name.removeprefix("_")
        if isinstance(held, Kept):
            parts += values_in(held, held.kept, state, f"{key}.")
        elif isinstance(held, np.ndarray):
            found[name] = np.array(from_state(state, key), dtype=held.dtype)
            if (shape := found[name].shape) != held.shape:
                other = f"{key!r} has shape {shape}, not {held.shape}"
                raise ValueError(f"the state belongs to other prompts: {other}")
        else:
            found[name] = type(held)(from_state(state, key))
            if name in owner.identity and found[name] != held:
                raise ValueError(
                    f"the state was saved with {key} {found[name]!r}, this one has {held!r}"
                )
    return parts


def set_values(parts: Iterable[tuple[Any, dict[str, Any]]]) -> None:
    """Set what `values_in` found."""
    for owner, values in parts:
        vars(owner).update(values)


def named_under(prefix: str, state: State) -> State:
    """Return a state with `prefix` and a dot before its names."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def part_of_state(state: State, prefix: str) -> State:
    """Return the part of a state that `named_under` put under `prefix`."""
    begin = f"{prefix}."
    return {k.removeprefix(begin): v for k, v in state.items() if k.startswith(begin)}


def refuse_or_warn(owner: str, state: State) -> None:
    """Load a state where nothing is kept: refuse a filled one, warn about an empty one."""
    if state:
        held = ", ".join(sorted(state))
        raise ValueError(f"{owner} has no load_state_dict, but the state holds {held}")
    log.warning("%s has no saved state: it starts over", owner)
