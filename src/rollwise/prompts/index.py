"""From a prompt's key to its place, in a few bytes a prompt."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling.draws import Key

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_FINGERPRINT_BLOCK = 1 << 16
_NAMED = 3
_REMEMBERED = 1 << 16


class KeyIndex:
    """Knows the place of every key, and the key at every place.

    Keys that are 0 to n − 1, in order, need no table. Others are found by a binary search among
    32-bit hashes (8 bytes a prompt); each find is confirmed on the key itself, so that two keys of
    one hash are distinguished. Keys are held by reference (8 bytes a prompt), integers by value.

    Args:
        keys: The prompts, each once: strings or integers (NumPy's become Python's).

    Attributes:
        keys: The key at each place.

    Raises:
        TypeError: A key that is neither a string nor an integer (a bool is neither).
        ValueError: A key occurs twice.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys: Sequence[Key] = _compact(keys)
        self._fingerprint: str | None = None
        self._recent: dict[Key, int] = {}
        if not isinstance(self.keys, range):
            codes = _codes(self.keys)
            order = np.argsort(codes, kind="stable")
            self._codes, self._order = codes[order], order.astype(np.int32)
            self._refuse_duplicates()

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[type["KeyIndex"], tuple[Sequence[Key]]]:
        return KeyIndex, (self.keys,)  # Python's hashes of strings differ from process to process

    @property
    def fingerprint(self) -> str:
        """A hash of all keys in their order: the same in every process."""
        if self._fingerprint is None:
            digest = hashlib.blake2b(digest_size=8)
            if isinstance(self.keys, range):
                digest.update(f"range {len(self.keys)}".encode())
            else:
                for start in range(0, len(self.keys), _FINGERPRINT_BLOCK):
                    block = map(_name, self.keys[start : start + _FINGERPRINT_BLOCK])
                    digest.update("\x1f".join(block).encode("utf-8", "surrogatepass") + b"\x1e")
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def keys_at(self, places: NDArray[np.integer[Any]]) -> list[Key]:
        """Return the keys at some places, and cache them: `tell` usually names them next."""
        keys = [self.keys[place] for place in places.tolist()]
        self._remember(keys, places.tolist())
        return keys

    def places(self, keys: Sequence[Key]) -> NDArray[np.int64]:
        """Find the place of each key, shape (P,).

        Raises:
            ValueError: Keys that are unknown or occur twice; names them.
        """
        places = np.array(self._find(keys), dtype=np.int64)
        if places.size and places.min() < 0:
            unknown = [keys[i] for i in np.flatnonzero(places < 0).tolist()]
            named = ", ".join(repr(key) for key in unknown[:_NAMED])
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            raise ValueError(f"not among the {len(self)} prompts of this sampler: {named}{more}")
        ordered = np.sort(places)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise ValueError(f"each prompt may come once, got key {self.keys[twice[0]]!r} twice")
        return places

    def _find(self, keys: Sequence[Key]) -> list[int]:
        if isinstance(self.keys, range):
            total = len(self)
            return [int(k) if isinstance(k, Integral) and 0 <= k < total else -1 for k in keys]
        found = [-1 if place is None else place for place in map(self._recent.get, keys)]
        others = [i for i, place in enumerate(found) if place < 0]
        for i, place in zip(others, self._look_up([keys[i] for i in others]), strict=True):
            found[i] = place
        if others:
            self._remember(keys, found)
        return found

    def _remember(self, keys: Sequence[Key], places: list[int]) -> None:
        if len(keys) <= _REMEMBERED:
            self._recent = dict(zip(keys, places, strict=True))

    def _look_up(self, keys: list[Key]) -> list[int]:
        if not keys:
            return []
        codes = _codes(keys)
        ranks = np.argsort(codes)  # a search in ascending order stays in the cache
        at = np.empty_like(ranks)
        at[ranks] = np.searchsorted(self._codes, codes[ranks])
        guesses = self._order[np.minimum(at, len(self) - 1)].tolist()
        return [
            guess if self.keys[guess] == key else self._search(key, rank)
            for key, guess, rank in zip(keys, guesses, at.tolist(), strict=True)
        ]

    def _search(self, key: Key, rank: int) -> int:
        """Search all keys of one hash, beginning at the first."""
        code = _codes([key])[0]
        while rank < len(self) and self._codes[rank] == code:
            place = int(self._order[rank])
            if self.keys[place] == key:
                return place
            rank += 1
        return -1

    def _refuse_duplicates(self) -> None:
        for rank in np.flatnonzero(self._codes[1:] == self._codes[:-1]).tolist():
            first = int(np.searchsorted(self._codes, self._codes[rank]))
            place = int(self._order[rank + 1])
            if self._search(self.keys[place], first) != place:
                raise ValueError(f"keys must be different, got {self.keys[place]!r} twice")


def _compact(keys: Iterable[Key]) -> Sequence[Key]:
    """Store keys that are their own places as a range, integers as an array, others as a tuple."""
    if not isinstance(keys, range | tuple | list | array):
        keys = keys.tolist() if isinstance(keys, np.ndarray) else tuple(keys)
    kinds = {int} if isinstance(keys, range | array) else set(map(type, keys))
    if not kinds <= {int, str}:
        keys = tuple(_plain(key) for key in keys)
        kinds = set(map(type, keys))
    if kinds != {int}:
        return tuple(keys)
    try:
        values = array("q", keys)
    except OverflowError:
        return tuple(keys)
    own_places = np.array_equal(np.frombuffer(values, dtype=np.int64), np.arange(len(values)))
    return range(len(values)) if own_places else values


def _plain(key: Key) -> Key:
    if isinstance(key, Integral) and not isinstance(key, bool | np.bool_):
        return int(key)
    if not isinstance(key, str):
        raise TypeError(f"a key must be a string or an integer, got {key!r}")
    return str(key)


def _codes(keys: Sequence[Key]) -> NDArray[np.uint32]:
    """Hash keys to 32 bits; Python's hash of an integer is the integer, so bits are mixed."""
    mixed = np.fromiter(map(hash, keys), dtype=np.int64, count=len(keys)).view(np.uint64)
    mixed *= _GOLDEN
    return (mixed >> _HALF).astype(np.uint32)


def _name(key: Key) -> str:
    return key if isinstance(key, str) else f"\x1d{key}"
