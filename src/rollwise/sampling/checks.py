"""Checks on arguments, made where an object is made, and warnings of names that have changed."""

import warnings
from numbers import Integral


def at_least(name: str, value: int, minimum: int) -> None:
    """Refuse a `value` that is not an integer or is below `minimum`.

    Raises:
        TypeError: `value` is not an integer.
        ValueError: `value` is below `minimum`.
    """
    if type(value) is int and value >= minimum:  # looking at abstract types takes longer
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def at_most(name: str, value: int, maximum: int) -> None:
    """Refuse a `value` above `maximum`.

    Raises:
        ValueError: `value` is above `maximum`.
    """
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def above_zero(name: str, value: float) -> None:
    """Refuse a `value` that is not above 0; infinity is.

    Raises:
        ValueError: `value` is 0, negative or NaN.
    """
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a `value` that is none of `choices`.

    Raises:
        ValueError: names the value and what exists.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller that a name has changed; the old one works for this release."""
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)
