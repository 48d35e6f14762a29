"""What identifies a draw: its prompt, its index, its seed; and why a prompt's draws end."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Integral
from typing import Literal

Key = str | int
"""What identifies a prompt."""

ExitReason = Literal["satisfied", "exhausted", "futile"]
"""Why a prompt's sampling ended: its rule was met, its budget spent, or its signal given up."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One response to be drawn: the `index`-th of the prompt `key`, from the random `seed`."""

    key: Key
    index: int
    seed: int


def index_by_key(keys: Iterable[Key], known: Container[Key] = ()) -> dict[Key, int]:
    """Return the place of each prompt in their order, from 0; keys become Python's own.

    Raises:
        TypeError: A key is neither a string nor an integer.
        ValueError: A key is given twice, or is among the `known`.
    """
    indices: dict[Key, int] = {}
    for given in keys:
        if isinstance(given, bool) or not isinstance(given, str | Integral):
            raise TypeError(f"a key must be a string or an integer, got {given!r}")
        key = str(given) if isinstance(given, str) else int(given)
        if key in indices or key in known:
            raise ValueError(f"keys must name each prompt once, got key {key!r} twice")
        indices[key] = len(indices)
    return indices


def draw_seed(seed: int, step: int, key: Key, index: int) -> int:
    """Hash a run's seed, the step, the prompt and the draw's index to 63 random bits.

    Neighbouring draws get unrelated seeds, because servers in use add a sample's index to the seed
    they are given. 1 and "1" are different keys.
    """
    kind = "str" if isinstance(key, str) else "int"
    return hash_index(f"{seed}\x1f{step}\x1f{kind}\x1f{key}\x1f", index)


def hash_index(name: str, index: int) -> int:
    """Hash a name and an index to 63 random bits."""
    whole = f"{name}{index}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "big") >> 1
