"""What the contract suites of beliefs and prompt samplers demand of states and metrics."""

import io
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rollwise.beliefs.state import State


def through_files(state: State) -> State:
    """Write a state as checkpoints do and read it back: arrays without pickle, scalars as JSON."""
    for name, value in state.items():
        flat = isinstance(value, np.ndarray | int | float | str)
        assert flat, f"{name} is a {type(value).__name__}; a state holds arrays and scalars only"
        assert not isinstance(value, np.ndarray) or value.dtype.kind in "biuf", (
            f"{name} is of {value.dtype}; arrays of a state hold numbers"
        )
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    scalars = {name: value for name, value in state.items() if name not in arrays}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        return {**{name: read[name] for name in read.files}, **json.loads(json.dumps(scalars))}


def refused(call: Callable[[], Any], *named: str) -> None:
    """Demand a ValueError or TypeError whose text has every one of `named`."""
    try:
        call()
    except (ValueError, TypeError) as error:
        missing = [text for text in named if text not in str(error)]
        if missing:
            raise AssertionError(f"the error should name {missing}, it is: {error}") from error
    else:
        raise AssertionError(f"nothing was refused; an error should name {list(named)}")


def assert_same(one: State, other: State) -> None:
    """Demand two states that are equal to the bit (so that NaN equals NaN)."""
    assert one.keys() == other.keys(), f"{sorted(one)} and {sorted(other)}"
    for name in one:
        first, second = np.asarray(one[name]), np.asarray(other[name])
        same = first.dtype == second.dtype and first.shape == second.shape
        assert same and first.tobytes() == second.tobytes(), f"{name} differs: {first}, {second}"


def keeps_state(plugin: Any, base: type) -> bool:
    """Say whether a plug-in has a state, or its own way to make one."""
    own = type(plugin).state_dict is not base.state_dict  # type: ignore[attr-defined]
    return own or bool(plugin.state_dict())


def check_metrics(plugin: Any, go_on: Callable[[], Any]) -> None:
    """Demand finite numbers, of the same names at any moment."""
    names = plugin.metrics().keys()
    for _ in range(3):
        go_on()
        metrics = plugin.metrics()
        assert metrics.keys() == names, f"{sorted(metrics)}, before {sorted(names)}"
        for name, value in metrics.items():
            assert isinstance(value, int | float) and math.isfinite(value), f"{name} is {value!r}"
