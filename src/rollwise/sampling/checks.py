"""Settings of plug-ins, and checks on arguments and on what plug-ins answer.

A check of an argument raises a `ValueError` that names it, what it must be and what it is.
"""

from collections.abc import Callable
from dataclasses import field
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.plugins import wrong_result


def setting(default: Any, help: str, *, name: str = "", **limits: Any) -> Any:
    """Declare a field of a dataclass that settings files can set.

    Args:
        default: Its value where none is given.
        help: What it does, for the documentation and `--help`; begins with a verb.
        name: Its `section.name` in settings files, where that is not the field's section and name.
        limits: Limits on its values there, as pydantic's `Field` takes them (`ge=1`).
    """
    named = {"setting": name, "limits": limits} if name else {}
    return field(default=default, metadata={"help": help, **named})


def at_least(name: str, value: int, minimum: int) -> None:
    """Refuse a `value` below `minimum`, or (a TypeError) one that is no integer."""
    if type(value) is int and value >= minimum:  # looking at abstract types takes longer
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def at_most(name: str, value: float, maximum: int) -> None:
    """Refuse a `value` above `maximum`."""
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def above_zero(name: str, value: float) -> None:
    """Refuse a `value` that is not above 0; infinity is allowed."""
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}")


def finite_above_zero(name: str, value: float) -> None:
    """Refuse a `value` that is not above 0, or is infinite."""
    if not 0 < value < np.inf:
        raise ValueError(f"{name} must be finite and above 0, got {value}")


def finite_at_least(name: str, value: float, minimum: float) -> None:
    """Refuse a `value` below `minimum`, or an infinite one."""
    if not minimum <= value < np.inf:
        raise ValueError(f"{name} must be finite and at least {minimum}, got {value}")


def share(name: str, value: float) -> None:
    """Refuse a `value` outside [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a `value` that is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_flags(plugin: object, *names: str) -> None:
    """Refuse (a `PluginError`) attributes that must be True or False, and are something else."""
    for name in names:
        value = getattr(plugin, name)
        if not isinstance(value, bool):
            raise wrong_result(plugin, name, "True or False", value)


def array_from(
    plugin: object, method: str, wanted: str, fits: Callable[[NDArray[Any]], bool], *given: Any
) -> NDArray[Any]:
    """Call a plug-in for an array of numbers; a `PluginError` names an answer that does not fit."""
    answer = getattr(plugin, method)(*given)
    try:
        found = np.asarray(answer)
        fine = found.dtype.kind in "biuf" and fits(found)
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise wrong_result(plugin, method, wanted, answer)
    return found
