"""The KV cache of a continuous batch, in rows: the keys and values of each slot's response."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwise.engines.attention import Part, Slots, Step

NARROWEST = 32
"""Tokens that a row of the narrowest bucket holds."""

FEWEST_ROWS = 16
"""Rows that a bucket begins with."""


class Bucket:
    """Rows of about equally long responses, with room for `width` tokens each."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.slots: Slots = np.empty(0, dtype=np.int64)  # whose row each is
        # Keys and values, shape (2, layers, rows, key-value heads, width, head size).
        self.store: Tensor | None = None

    def append(self, slots: Slots, states: Tensor) -> None:
        """Add rows; `states` has their first tokens, shape (2, layers, rows, heads, T, size)."""
        begin, end = len(self.slots), len(self.slots) + len(slots)
        store = self._room_for(end, states)
        store[:, :, begin:end, :, : states.shape[4]] = states
        self.slots = np.concatenate([self.slots, slots])

    def take(self, leaving: NDArray[np.bool_], filled: int) -> None:
        """Drop the rows of a mask; the last rows move into their places, `filled` tokens each."""
        kept = len(self.slots) - int(leaving.sum())
        holes = np.flatnonzero(leaving[:kept])
        movers = kept + np.flatnonzero(~leaving[kept:])
        if len(holes):
            assert self.store is not None
            store = self.store[:, :, :, :, :filled]
            store[:, :, holes] = store[:, :, movers]
            self.slots[holes] = self.slots[movers]
        self.slots = self.slots[:kept]

    def _room_for(self, rows: int, like: Tensor) -> Tensor:
        """The store, with room for `rows` rows; it doubles, and never shrinks."""
        old = self.store
        if old is not None and old.shape[2] >= rows:
            return old
        room = max(FEWEST_ROWS, 1 << (rows - 1).bit_length())
        halves, layers, _, heads, _, size = like.shape
        # Zeros, not empty memory: a NaN there would survive the mask.
        self.store = store = like.new_zeros((halves, layers, room, heads, self.width, size))
        if old is not None:
            store[:, :, : old.shape[2]] = old
        return store


class BucketedCache:
    """The keys and values of up to `count` responses, each in a slot, whatever their lengths.

    A response's row is in the narrowest bucket that holds it, and moves to the next as it grows, so
    little padding is computed, and memory follows the actual lengths.

    Attributes:
        lengths: Tokens whose keys and values are known, by slot, shape (count,).
    """

    def __init__(self, count: int, longest: int, device: torch.device) -> None:
        self._device = device
        self.lengths: Slots = np.zeros(count, dtype=np.int64)
        self._buckets = [Bucket(width) for width in widths(longest)]

    @property
    def order(self) -> Slots:
        """The slots in use, in the order of the rows of a step."""
        return np.concatenate([bucket.slots for bucket in self._buckets])

    def fill(self, slots: Slots, prefix: Tensor) -> None:
        """Begin responses to one prompt, given its keys and values.

        Args:
            slots: Where they go, shape (n,).
            prefix: Shape (2, layers, 1, key-value heads, tokens of the prompt, head size).
        """
        self.lengths[slots] = prefix.shape[4]
        bucket = next(bucket for bucket in self._buckets if bucket.width > prefix.shape[4])
        bucket.append(slots, prefix)

    def release(self, slots: Slots) -> None:
        """Empty slots."""
        released = np.zeros(len(self.lengths), dtype=bool)
        released[slots] = True
        for bucket in self._buckets:
            leaving = released[bucket.slots]
            if leaving.any():
                bucket.take(leaving, int(self.lengths[bucket.slots].max()))

    def begin_step(self) -> Step:
        """Make room for one more token in each row; return the attention of these tokens."""
        for bucket, wider in zip(self._buckets, self._buckets[1:], strict=False):
            full = self.lengths[bucket.slots] >= bucket.width
            if full.any():
                assert bucket.store is not None
                rows = np.flatnonzero(full)
                wider.append(bucket.slots[rows], bucket.store[:, :, rows])
                bucket.take(full, bucket.width)
        parts, begin = [], 0
        for bucket in self._buckets:
            if len(bucket.slots):
                assert bucket.store is not None
                lengths = self.lengths[bucket.slots]
                parts.append(Part.of(begin, bucket.store, lengths, self._device))
                begin += len(lengths)
        return Step(parts)


def widths(longest: int) -> list[int]:
    """Widths of buckets for up to `longest` tokens: each half as wide again as the one before."""
    found = [NARROWEST]
    while found[-1] < longest:
        found.append(math.ceil(found[-1] * 1.5 / 16) * 16)
    return found
