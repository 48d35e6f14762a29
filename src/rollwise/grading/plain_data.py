"""Plain data: what a problem's tests and a response's program exchange as copies, in JSON."""

import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any


def _by(kind: Callable[..., Any], *names: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return lambda value: [getattr(value, name) for name in names], lambda parts: kind(*parts)


def _items(value: dict[Any, Any]) -> list[Any]:
    return list(value.items())


PARTS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (hex, lambda text: int(text, 16)),
    float: (float.__repr__, float),
    decimal.Decimal: (str, decimal.Decimal),
    **{kind: (kind.hex, kind.fromhex) for kind in (bytes, bytearray)},
    **{
        kind: (kind.isoformat, kind.fromisoformat)
        for kind in (datetime.datetime, datetime.date, datetime.time)
    },
    **{kind: (list, kind) for kind in (list, tuple, set, frozenset)},
    **{kind: (_items, kind) for kind in (dict, collections.OrderedDict)},
    collections.Counter: (_items, lambda items: collections.Counter(dict(items))),
    collections.defaultdict: (_items, lambda items: collections.defaultdict(None, items)),
    collections.deque: (lambda v: [list(v), v.maxlen], lambda v: collections.deque(*v)),
    range: _by(range, "start", "stop", "step"),
    slice: _by(slice, "start", "stop", "step"),
    complex: _by(complex, "real", "imag"),
    fractions.Fraction: _by(fractions.Fraction, "numerator", "denominator"),
    datetime.timedelta: _by(datetime.timedelta, "days", "seconds", "microseconds"),
}
"""Plain data: how a value is taken apart, into a text or other plain data, and put together."""

KINDS = {kind.__name__: kind for kind in PARTS}

VALUES = (int, float, complex, str, bytes, tuple, frozenset)
"""An object of a program's own subclass of these is its value, with further attributes."""

CONTAINERS = (list, dict, set, bytearray, collections.deque)
"""What a function may change in place."""


def change(old: Any, new: Any) -> None:
    """Give a container the content of another one; those inside are other objects than before."""
    if type(old) is not type(new) or not isinstance(old, CONTAINERS):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
        return
    old.clear()
    old.extend(new) if isinstance(old, collections.deque) else old.update(new)


def plain_value(value: Any, base: Any) -> Any:
    """Return the value of an object of a subclass, whatever that overrides."""
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return str.__str__(value) if base is str else base.__pos__(value)


def _refuse(value: Any) -> Any:
    raise TypeError(f"{value!r:.80} is not plain data")


def encode(value: Any, other: Callable[[Any], Any] = _refuse) -> Any:
    """Turn plain data into JSON that tells all kinds apart; `other` does it for the rest."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind not in PARTS:
        return other(value)
    parts = PARTS[kind][0](value)
    return [kind.__name__, parts if isinstance(parts, str) else [encode(p, other) for p in parts]]


def decode(data: Any, other: Callable[[Any], Any] = _refuse) -> Any:
    """Undo `encode`, or raise an error of any kind."""
    if not isinstance(data, list):
        return data
    if data[0] not in KINDS:
        return other(data)
    kind, parts = data
    return PARTS[KINDS[kind]][1](
        parts if isinstance(parts, str) else [decode(part, other) for part in parts]
    )
