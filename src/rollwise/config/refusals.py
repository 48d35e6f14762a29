"""Settings of ours, or of a framework, that must have one of a few values to go together."""

from collections.abc import Callable, Iterable
from typing import Any

Rule = tuple[str, tuple[Any, ...], str]
"""The name of a setting, the values that it may have, and why it may have no other."""


def refusals(rules: Iterable[Rule], value_of: Callable[[str], Any]) -> list[str]:
    """Say of each setting that has another value what it must be, why, and what it is."""
    return [
        f"`{name}` must be {' or '.join(map(_shown, allowed))}: {why}; it is {_shown(found)}"
        for name, allowed, why in rules
        if (found := value_of(name)) not in allowed
    ]


def _shown(value: Any) -> str:
    return "unset" if value is None else repr(value)
