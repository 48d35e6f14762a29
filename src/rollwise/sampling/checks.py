"""Limits that fields declare, and checks on arguments and on what plug-ins answer."""

import functools
import math
from collections.abc import Sequence
from contextlib import suppress
from numbers import Integral
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import ArrayLike, NDArray

from rollwise.plugins import wrong_result

Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Inner = Annotated[float, Gt(0), Lt(1)]
Positive = Annotated[float, Gt(0), Lt(math.inf)]
NonNegative = Annotated[float, Ge(0), Lt(math.inf)]
Above0 = Annotated[float, Gt(0)]


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a class's attributes, with their limits."""
    return get_type_hints(kind, include_extras=True)


def plain_types(hint: Any) -> set[Any]:
    """Return the types that a value may have, without their parameters."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {type(value) for value in inner}
    if origin is Annotated:
        return plain_types(inner[0])
    if origin in (Union, UnionType):
        return set().union(*map(plain_types, inner))
    return {origin or hint}


def limits_of(hint: Any) -> dict[str, float]:
    """Return the limits of a type, or of the alternatives that it has: `ge`, `gt`, `le`, `lt`."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    limits = [limit for part in parts for limit in getattr(part, "__metadata__", ())]
    ends = ("ge", "gt", "le", "lt")
    return {end: getattr(each, end) for each in limits for end in ends if hasattr(each, end)}


class Checked:
    """A dataclass whose values must be those of its `Literal`s, and within its types' limits.

    Others raise a ValueError, or a TypeError for what should be an integer.
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        with suppress(NameError):  # of a user's type that only type checkers know
            for name, hint in hints_of(kind).items():
                _check(name, getattr(self, name, None), hint)


def _check(name: str, value: Any, hint: Any) -> None:
    types, limits = plain_types(hint), limits_of(hint)
    if get_origin(hint) is Literal:
        one_of(name, value, get_args(hint))
    if not limits or (value is None and NoneType in types):
        return
    if int in types:
        at_least(name, value, int(limits.get("ge", value)))
    if limits.keys() != {"ge"} or float in types:
        low = limits.get("ge", limits.get("gt", -math.inf))
        high = limits.get("le", limits.get("lt", math.inf))
        start, end = "(["["ge" in limits], ")]"["lt" not in limits]
        within(name, value, f"{start}{low}, {high}{end}")


def at_least(name: str, value: int, minimum: int) -> None:
    """Refuse (a ValueError) a `value` below `minimum`, or (a TypeError) one that is no integer."""
    if type(value) is int and value >= minimum:  # looking at abstract types takes longer
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def within(name: str, value: float, interval: str) -> None:
    """Refuse (a ValueError) a `value` outside `interval`, such as "[0, 1]" or "(0, inf)"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise ValueError(f"{name} must lie in {interval}, got {value}")


def one_of(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse (a ValueError) a `value` that is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_flags(plugin: object, *names: str) -> None:
    """Refuse (a `PluginError`) attributes that must be True or False, and are something else."""
    for name in names:
        value = getattr(plugin, name)
        if not isinstance(value, bool):
            raise wrong_result(plugin, name, "True or False", value)


def array_from(
    plugin: object,
    method: str,
    wanted: str,
    given: Sequence[Any],
    shape: tuple[int | None, ...],
    limits: tuple[ArrayLike, ArrayLike] = (-np.inf, np.inf),
    nan: ArrayLike = False,
    kinds: str = "biuf",
) -> NDArray[Any]:
    """Call a plug-in for an array of numbers; a `PluginError` names what was `wanted` and returned.

    A size of None may be any. `limits` (included) and `nan` (allowed) broadcast with the array;
    `kinds` are those of its `dtype`.
    """
    answer = getattr(plugin, method)(*given)
    try:
        found = np.asarray(answer)
        fits = found.dtype.kind in kinds or not found.size  # an empty list becomes floats
        fits &= all(due in (None, size) for size, due in zip(found.shape, shape, strict=True))
        within_limits = (found >= limits[0]) & (found <= limits[1])
        fits &= bool(np.all(within_limits | (np.isnan(found) & nan)))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise wrong_result(plugin, method, wanted, answer)
    return found
