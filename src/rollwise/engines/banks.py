"""Keys and values in rows, together with others that are about as long."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

NARROWEST = 32
"""Tokens that a row of the narrowest bank holds."""

FEWEST_ROWS = 16
"""Rows that a bank begins with."""

Ids = NDArray[np.int64]


class Bank:
    """Rows that are about equally long: `width` tokens each, and the first filled.

    Attributes:
        ids: Whose row each is, shape (rows in use,).
        store: Keys and values, shape (2, layers, rows, key-value heads, width, head size); its
            first rows are those in use.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self.store: Tensor | None = None

    @property
    def states(self) -> Tensor:
        """Keys and values of the rows in use; there must be some."""
        assert self.store is not None
        return self.store[:, :, : len(self.ids)]

    def append(self, ids: Ids, states: Tensor) -> None:
        """Add rows; `states` has their first tokens, shape (2, layers, rows, heads, T, size)."""
        begin, end = len(self.ids), len(self.ids) + len(ids)
        store = self._room_for(end, states)
        store[:, :, begin:end, :, : states.shape[4]] = states
        self.ids = np.concatenate([self.ids, ids])

    def take(self, leaving: NDArray[np.bool_], filled: int) -> None:
        """Drop the rows of a mask; the last rows move into their places, `filled` tokens each."""
        kept = len(self.ids) - int(leaving.sum())
        holes = np.flatnonzero(leaving[:kept])
        movers = kept + np.flatnonzero(~leaving[kept:])
        if len(holes):
            states = self.states[:, :, :, :, :filled]
            states[:, :, holes] = states[:, :, movers]
            self.ids[holes] = self.ids[movers]
        self.ids = self.ids[:kept]

    def _room_for(self, rows: int, like: Tensor) -> Tensor:
        """The store, with room for so many rows; it doubles, and never shrinks."""
        old = self.store
        if old is None or old.shape[2] < rows:
            room = max(FEWEST_ROWS, 1 << (rows - 1).bit_length())
            halves, layers, _, heads, _, size = like.shape
            # Not empty: a NaN among what was there before would outlast the mask.
            self.store = like.new_zeros((halves, layers, room, heads, self.width, size))
            if old is not None:
                self.store[:, :, : old.shape[2]] = old
        assert self.store is not None
        return self.store


class Banks:
    """Rows of any lengths, each in the narrowest bank that holds it.

    So little padding is computed, and memory follows the lengths there are.

    Args:
        longest: The most tokens of a row.
    """

    def __init__(self, longest: int) -> None:
        self._banks = [Bank(width) for width in widths(longest)]

    def __iter__(self) -> Iterator[Bank]:
        """Banks that have rows in use, the narrowest first."""
        return (bank for bank in self._banks if len(bank.ids))

    @property
    def ids(self) -> Ids:
        """Whose rows there are, bank by bank."""
        return np.concatenate([bank.ids for bank in self._banks])

    def append(self, ids: Ids, states: Tensor, room: int) -> None:
        """Add rows, as `Bank.append` does, that can hold `room` tokens."""
        next(bank for bank in self._banks if bank.width >= room).append(ids, states)

    def release(self, ids: Ids, lengths: Ids) -> None:
        """Drop rows, given the lengths of all by id."""
        released = np.zeros(len(lengths), dtype=bool)
        released[ids] = True
        for bank in self:
            leaving = released[bank.ids]
            if leaving.any():
                bank.take(leaving, int(lengths[bank.ids].max()))

    def widen(self, lengths: Ids) -> None:
        """Make room for one token more in each row, given the lengths of all by id."""
        for bank, wider in zip(self._banks, self._banks[1:], strict=False):
            full = lengths[bank.ids] >= bank.width
            if full.any():
                rows = np.flatnonzero(full)
                wider.append(bank.ids[rows], bank.states[:, :, rows])
                bank.take(full, bank.width)


def widths(longest: int) -> list[int]:
    """Widths of banks for up to `longest` tokens: each half as wide again as the one before."""
    found = [NARROWEST]
    while found[-1] < longest:
        found.append(math.ceil(found[-1] * 1.5 / 16) * 16)
    return found
