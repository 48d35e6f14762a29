"""Settings of plug-ins, and checks on arguments, made where an object is made.

A check raises a `ValueError` that names the argument, what it must be and what it is.
"""

from dataclasses import field
from numbers import Integral
from typing import Any

import numpy as np


def setting(default: Any, help: str) -> Any:
    """Declare a field of a dataclass that settings files can set.

    Args:
        default: Its value where none is given.
        help: What it means, for the documentation and `--help`.
    """
    return field(default=default, metadata={"help": help})


def at_least(name: str, value: int, minimum: int) -> None:
    """Refuse a `value` below `minimum`, or (a TypeError) one that is no integer."""
    if type(value) is int and value >= minimum:  # looking at abstract types takes longer
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def at_most(name: str, value: int, maximum: int) -> None:
    """Refuse a `value` above `maximum`."""
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def above_zero(name: str, value: float) -> None:
    """Refuse a `value` that is not above 0; infinity is."""
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
    """Refuse a `value` that is none of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
