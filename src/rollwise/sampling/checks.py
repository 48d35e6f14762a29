"""Checks on arguments, made where an object is made."""

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


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a `value` that is none of `choices`.

    Raises:
        ValueError: names the value and what exists.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
