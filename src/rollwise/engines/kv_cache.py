"""The KV cache of a continuous batch, in rows: the keys and values of each slot's response."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rollwise.engines.attention import LayerInputs, Slots

NARROWEST = 32
"""Tokens that a row of the narrowest bucket holds."""

FEWEST_ROWS = 16
"""Rows that a bucket begins with."""


class Bucket:
    """Rows of about equally long responses, with room for `width` tokens each."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.slots: Slots = np.empty(0, dtype=np.int64)  # the slot of each row
        # Keys and values, shape (2, layers, rows, key-value heads, width, head size).
        self.store = torch.zeros((0,) * 6)

    def append(self, slots: Slots, states: Tensor) -> None:
        """Add rows; `states` has their first tokens, shape (2, layers, rows, heads, T, size)."""
        begin, end = len(self.slots), len(self.slots) + len(slots)
        if (old := self.store).shape[2] < end:  # it doubles, and never shrinks
            room = max(FEWEST_ROWS, 1 << (end - 1).bit_length())
            halves, layers, _, heads, _, size = states.shape
            # Zeros, not empty memory: a NaN there would survive the mask.
            self.store = states.new_zeros((halves, layers, room, heads, self.width, size))
            if old.numel():
                self.store[:, :, : old.shape[2]] = old
        self.store[:, :, begin:end, :, : states.shape[4]] = states
        self.slots = np.concatenate([self.slots, slots])

    def take(self, leaving: NDArray[np.bool_], filled: int) -> None:
        """Drop the rows of a mask; the last rows move into their places, `filled` tokens each."""
        kept = len(self.slots) - int(leaving.sum())
        holes = np.flatnonzero(leaving[:kept])
        movers = kept + np.flatnonzero(~leaving[kept:])
        if len(holes):
            store = self.store[:, :, :, :, :filled]
            store[:, :, holes] = store[:, :, movers]
            self.slots[holes] = self.slots[movers]
        self.slots = self.slots[:kept]

    def begin_step(self, begin: int, lengths: Slots) -> None:
        """Set which rows of a step are the bucket's, from `begin` on, and how long each is."""
        (heads, width), count = self.store.shape[3:5], len(lengths)
        device, begins = self.store.device, np.arange(count * heads) * width
        self.rows = slice(begin, begin + count)
        self._longest = int(lengths.max()) + 1  # the new token included
        # Where each row's new token goes, and the same for each head, through a layer's keys.
        self._indices = torch.from_numpy(lengths).to(device)
        self._flat_indices = torch.from_numpy(begins + lengths.repeat(heads)).to(device)

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a row's token attends, −∞ elsewhere, shape (rows, 1, 1, longest)."""
        tokens = torch.arange(self._longest, device=self._indices.device)
        ages = self._indices[:, None] - tokens
        hidden = (ages < 0) if window is None else (ages < 0) | (ages >= window)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, -math.inf)[:, None, None]

    def keep(self, half: int, layer: int, states: Tensor) -> Tensor:
        """Store new keys (`half` 0) or values (1); returns all, (rows, heads, longest, size)."""
        kept, new = self.store[half, layer], states[self.rows].flatten(0, 2)
        kept.view(-1, kept.shape[-1]).index_copy_(0, self._flat_indices, new)
        return kept[: len(self.slots), :, : self._longest]


class BucketedCache:
    """The keys and values of up to `count` responses, each in a slot, whatever their lengths.

    A response's row is in the narrowest bucket that holds it, and moves to the next as it grows, so
    little padding is computed, and memory follows the actual lengths.

    Attributes:
        lengths: Tokens whose keys and values are known, by slot, shape (count,).
    """

    def __init__(self, count: int, longest: int) -> None:
        self.lengths: Slots = np.zeros(count, dtype=np.int64)
        self._buckets = [Bucket(NARROWEST)]
        while (width := self._buckets[-1].width) < longest:
            self._buckets.append(Bucket(math.ceil(width * 1.5 / 16) * 16))

    @property
    def order(self) -> Slots:
        """The slots in use, in the order of the rows of a step."""
        return np.concatenate([bucket.slots for bucket in self._buckets])

    def fill(self, slots: Slots, prefix: Tensor) -> None:
        """Begin responses to a prompt; `prefix` has shape (2, layers, 1, heads, tokens, size)."""
        self.lengths[slots] = prefix.shape[4]
        bucket = next(bucket for bucket in self._buckets if bucket.width > prefix.shape[4])
        bucket.append(slots, prefix)

    def release(self, slots: Slots) -> None:
        released = np.zeros(len(self.lengths), dtype=bool)
        released[slots] = True
        for bucket in self._buckets:
            leaving = released[bucket.slots]
            if leaving.any():
                bucket.take(leaving, int(self.lengths[bucket.slots].max()))

    def begin_step(self) -> "Step":
        """Make room for one more token in each row; return the attention of these tokens."""
        for bucket, wider in zip(self._buckets, self._buckets[1:], strict=False):
            full = self.lengths[bucket.slots] >= bucket.width
            if full.any():
                rows = np.flatnonzero(full)
                wider.append(bucket.slots[rows], bucket.store[:, :, rows])
                bucket.take(full, bucket.width)
        used, begin = [bucket for bucket in self._buckets if len(bucket.slots)], 0
        for bucket in used:
            bucket.begin_step(begin, self.lengths[bucket.slots])
            begin += len(bucket.slots)
        return Step(used)


class Step:
    """Attention of one new token a row to all tokens of its row."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._buckets = buckets
        self._masks: dict[int | None, list[Tensor]] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend to the new tokens, which are stored, and to those before them."""
        layer, query, key, value, scale, window = inputs
        grouped = query.reshape(*key.shape[:2], -1, query.shape[-1])
        if window not in self._masks:
            self._masks[window] = [bucket.mask(window, query.dtype) for bucket in self._buckets]
        found = torch.empty_like(grouped)
        for bucket, mask in zip(self._buckets, self._masks[window], strict=True):
            keys, values = bucket.keep(0, layer, key), bucket.keep(1, layer, value)
            found[bucket.rows] = _attend(grouped[bucket.rows], keys, values, mask, scale)
        return found.view(query.shape)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one token a row; on a CPU plain products are faster for so few queries."""
    if query.device.type != "cpu":
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    scores = (query * scale) @ keys.transpose(2, 3)
    weights = torch.softmax(scores.add_(mask), dim=-1, dtype=torch.float32)
    return weights.to(values.dtype) @ values
