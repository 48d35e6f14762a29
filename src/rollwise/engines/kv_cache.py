"""The KV cache of a continuous batch: the keys and values of each slot's response."""

import math
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from rollwise.engines.attention import LayerInputs, Slots

FIRST = 64
"""Tokens that the first segment holds."""

NARROWEST = 32
"""Tokens that each further segment holds, or an eighth of those before it if that is more."""

SMALL = 2**26
"""A cache of at most so many numbers keeps its memory when rows leave: new memory costs more."""


class Segment:
    """The tokens `begin` to `end` of the responses that have more than `begin` of them."""

    def __init__(self, begin: int) -> None:
        width = max(NARROWEST, math.ceil(begin / 128) * 16) if begin else FIRST
        self.begin, self.end = begin, begin + width
        # Keys and values, shape (2, layers, rows, key-value heads, width, head size).
        self.store = torch.zeros((0,) * 6)

    def make_room(self, used: int, rows: int, like: Tensor, shrinks: bool) -> None:
        """Make room for `rows` rows, of which `used` are kept; memory may follow them down."""
        room = self.store.shape[2]
        if rows > room or (shrinks and rows < room - room // 16):
            halves, layers, _, heads, _, size = like.shape
            spare = rows // 32 if used else 0
            shape = (halves, layers, rows + spare, heads, self.end - self.begin, size)
            # Zeros, not empty memory: a NaN there would survive a weight of 0.
            old, self.store = self.store, like.new_zeros(shape)
            if kept := min(used, rows):
                self.store[:, :, :kept] = old[:, :, :kept]


class SegmentedCache:
    """The keys and values of up to `count` responses, each in a slot, whatever their lengths.

    A response that outgrows its segments begins the next one. Rows are sorted by their number of
    segments, the most first: so each segment holds the first rows, memory follows the lengths, and
    little is computed for padding.

    Attributes:
        lengths: Tokens whose keys and values are known, by slot, shape (count,).
        order: The slots in use, in the order of the rows of a step.
    """

    def __init__(self, count: int, longest: int) -> None:
        self.lengths: Slots = np.zeros(count, dtype=np.int64)
        self.order: Slots = np.empty(0, dtype=np.int64)
        self._counts: Slots = np.empty(0, dtype=np.int64)  # the segments of each row
        self._segments = [Segment(0)]
        while (end := self._segments[-1].end) < longest:
            self._segments.append(Segment(end))
        self._ends: Slots = np.array([segment.end for segment in self._segments])
        self._like = torch.zeros((0,) * 6)

    @property
    def allocated(self) -> int:
        """Bytes that the keys and values take."""
        return sum(s.store.numel() * s.store.element_size() for s in self._segments)

    def fill(self, begun: Collection[tuple[Slots, Tensor]]) -> None:
        """Begin responses in slots; of a prompt with states (2, layers, 1, heads, T, size)."""
        slots, lengths = self.order, []
        for own, states in begun:
            self.lengths[own] = states.shape[4]
            slots = np.concatenate([slots, own])
            lengths += [states.shape[4]] * len(own)
            self._like = states
        self.order = slots
        needed = np.searchsorted(self._ends, lengths) + 1
        kept, none = self._counts, np.zeros_like(needed)
        self._counts = np.concatenate([kept, none])
        self._arrange(np.concatenate([kept, needed]))
        row_of = np.empty(len(self.lengths), dtype=np.int64)
        row_of[self.order] = np.arange(len(self.order))
        for own, states in begun:
            for segment in self._segments:
                part = states[:, :, :, :, segment.begin : segment.end]
                if not part.shape[4]:
                    break
                segment.store[:, :, row_of[own], :, : part.shape[4]] = part

    def release(self, slots: Slots) -> None:
        released = np.zeros(len(self.lengths), dtype=bool)
        released[slots] = True
        self._arrange(np.where(released[self.order], 0, self._counts))

    def begin_step(self) -> "TokenStep":
        """Make room for one more token in each row; return the attention of these tokens."""
        full = self.lengths[self.order] >= self._ends[self._counts - 1]
        if full.any():
            self._arrange(self._counts + full)
        rows = [int((self._counts > j).sum()) for j in range(int(self._counts[0]))]
        return TokenStep(self._segments[: len(rows)], rows, self.lengths[self.order])

    def _arrange(self, counts: Slots) -> None:
        """Sort the rows by their new numbers of segments, 0 for a row that leaves.

        As few rows move as possible, and each segment has room for its rows.
        """
        old, kept = self._counts, int((counts > 0).sum())
        wanted = np.sort(counts)[::-1][:kept]
        stays = np.zeros(len(counts), dtype=bool)
        stays[:kept] = counts[:kept] == wanted
        places = np.flatnonzero(~stays[:kept])
        movers = np.flatnonzero(~stays & (counts > 0))
        movers = movers[np.argsort(-counts[movers], kind="stable")]
        most = max(old.max(initial=0), counts.max(initial=0))
        shrinks = sum(segment.store.numel() for segment in self._segments) > SMALL
        for index, segment in enumerate(self._segments[:most]):
            used, rows = int((old > index).sum()), int((counts > index).sum())
            if rows > segment.store.shape[2]:
                segment.make_room(used, rows, self._like, shrinks)
            held = old[movers] > index
            if held.any():
                segment.store[:, :, places[held]] = segment.store[:, :, movers[held]]
            segment.make_room(rows, rows, self._like, shrinks)
        order = self.order.copy()
        order[places] = order[movers]
        self.order, self._counts = order[:kept], wanted


class TokenStep:
    """Attention of one new token a row to all tokens of its row.

    Args:
        segments: Those with rows.
        rows: How many rows each has.
        lengths: Tokens of each row before the new one, shape (B,).
    """

    def __init__(self, segments: Sequence[Segment], rows: Sequence[int], lengths: Slots) -> None:
        self._lengths, self._longest = lengths, int(lengths.max()) + 1
        self._masks: dict[int | None, Tensor] = {}
        self._parts: list[tuple[Segment, int, int, Tensor]] = []
        for segment, count, following in zip(segments, rows, [*rows[1:], 0], strict=True):
            store = segment.store
            heads, width = store.shape[3:5]
            # Where the new tokens of the rows that end in this segment go, through a layer's keys.
            places = np.arange(following * heads, count * heads) * width
            places += (lengths[following:count] - segment.begin).repeat(heads)
            self._parts.append(
                (segment, count, following, torch.from_numpy(places).to(store.device))
            )

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend to the new tokens, which are stored, and to those before them."""
        layer, query, key, value, scale, window = inputs
        grouped = query.reshape(*key.shape[:2], -1, query.shape[-1]) * scale
        scores = grouped.new_empty((*grouped.shape[:3], self._longest))
        for segment, count, following, places in self._parts:
            for states, kept in zip((key, value), segment.store[:, layer], strict=True):
                flat = kept.view(-1, kept.shape[-1])
                flat.index_copy_(0, places, states[following:count].flatten(0, 2))
            keys = segment.store[0, layer, :count, :, : self._longest - segment.begin]
            scores[:count, :, :, segment.begin : segment.end] = grouped[:count] @ keys.mT
        weights = scores.masked_fill_(self._hidden(window, query.device), -math.inf)
        weights = torch.softmax(weights, dim=-1, dtype=torch.float32).to(value.dtype)
        found = torch.zeros_like(grouped)
        for segment, count, _, _ in self._parts:
            values = segment.store[1, layer, :count, :, : self._longest - segment.begin]
            found[:count] += weights[:count, :, :, segment.begin : segment.end] @ values
        return found.view(query.shape)

    def _hidden(self, window: int | None, device: torch.device) -> Tensor:
        """Return which tokens a row does not attend to, shape (B, 1, 1, longest)."""
        if window not in self._masks:
            tokens = torch.arange(self._longest, device=device)
            ages = torch.from_numpy(self._lengths).to(device)[:, None] - tokens
            hidden = (ages < 0) if window is None else (ages < 0) | (ages >= window)
            self._masks[window] = hidden[:, None, None]
        return self._masks[window]
