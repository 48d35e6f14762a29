"""The KV cache on a CPU: keys and values in pages, and compiled attention over them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwise.engines.attention import LayerInputs
from rollwise.engines.cpu.kernels import PAGE, paged_attention

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]

FEWEST_PAGES = 64
"""Pages at first."""


@dataclass
class _SharedPrompt:
    """The pages of a prompt, for all responses to it."""

    prefix: Tensor  # the keys and values on them; while it is kept here, its id stays unique
    pages: Ids
    readers: int = 0  # the number of slots that read them


class PagedCache:
    """The keys and values of up to `count` responses, each in a slot, whatever their lengths.

    They are stored in pages, as in vLLM (Kwon et al. 2023, section 4.1): nothing is moved or padded
    as responses grow, and responses to one prompt read its keys and values from the same pages.

    Attributes:
        lengths: Tokens whose keys and values are known, by slot, shape (count,).
    """

    def __init__(self, count: int) -> None:
        self.lengths: Ids = np.zeros(count, dtype=np.int64)
        self._prompt_lengths = np.zeros_like(self.lengths)
        self._page_counts = np.zeros_like(self.lengths)
        self._tables: Ids = np.zeros((count, 8), dtype=np.int64)
        self._prompt_of: dict[int, _SharedPrompt] = {}
        self._prompts: dict[int, _SharedPrompt] = {}
        self._store: Floats | None = None
        self._free: list[int] = []

    @property
    def order(self) -> Ids:
        """The slots in use, in the order of the rows of a step."""
        return np.flatnonzero(self._page_counts)

    def fill(self, slots: Ids, prefix: Tensor) -> None:
        """Begin responses to one prompt, given its keys and values."""
        prompt = self._prompts.get(id(prefix)) or self._add(prefix)
        prompt.readers += len(slots)
        self._prompt_of.update(dict.fromkeys(slots.tolist(), prompt))
        self.lengths[slots] = self._prompt_lengths[slots] = prefix.shape[4]
        self._page_counts[slots] = len(prompt.pages)
        self._widen_tables(len(prompt.pages))
        self._tables[slots, : len(prompt.pages)] = prompt.pages

    def release(self, slots: Ids) -> None:
        """Empty slots."""
        for slot in slots.tolist():
            prompt = self._prompt_of.pop(slot)
            own = self._tables[slot, len(prompt.pages) : self._page_counts[slot]]
            self._free += own.tolist()
            prompt.readers -= 1
            if not prompt.readers:
                self._free += prompt.pages.tolist()
                del self._prompts[id(prompt.prefix)]
        self._page_counts[slots] = 0

    def begin_step(self) -> "PagedStep":
        """Make room for one more token in each row; return the attention of these tokens."""
        assert self._store is not None
        order = self.order
        full = order[(self.lengths[order] - self._prompt_lengths[order]) % PAGE == 0]
        if len(full):
            counts = self._page_counts[full]
            self._widen_tables(int(counts.max()) + 1)
            self._tables[full, counts] = self._take(len(full))
            self._page_counts[full] += 1
        most = int(self._page_counts.max())
        tables = self._tables[order, :most]
        return PagedStep(self._store, tables, self._prompt_lengths[order], self.lengths[order])

    def _add(self, prefix: Tensor) -> _SharedPrompt:
        """Put a prompt's keys and values on pages."""
        halves, layers, _, heads, tokens, size = prefix.shape
        count = -(-tokens // PAGE)
        if self._store is None:
            self._store = np.zeros((layers, halves, 0, PAGE, heads, size), dtype=np.float32)
        prompt = self._prompts[id(prefix)] = _SharedPrompt(prefix, self._take(count))
        padded = np.zeros((layers, halves, count * PAGE, heads, size), dtype=np.float32)
        padded[:, :, :tokens] = prefix[:, :, 0].permute(1, 0, 3, 2, 4).numpy()
        self._store[:, :, prompt.pages] = padded.reshape(layers, halves, count, PAGE, heads, size)
        return prompt

    def _take(self, count: int) -> Ids:
        """Take free pages; if there are too few, double their number first."""
        assert self._store is not None
        if len(self._free) < count:
            old = self._store.shape[2]
            new = max(FEWEST_PAGES, 2 * old, old + count)
            shape = (*self._store.shape[:2], new, *self._store.shape[3:])
            # Zeros, not empty memory: a NaN there would survive a weight of 0.
            store = np.zeros(shape, dtype=np.float32)
            store[:, :, :old] = self._store
            self._store = store
            self._free += range(old, new)
        taken = np.array(self._free[-count:])
        del self._free[-count:]
        return taken

    def _widen_tables(self, pages: int) -> None:
        slots, width = self._tables.shape
        if width < pages:
            tables = np.zeros((slots, max(2 * width, pages)), dtype=np.int64)
            tables[:, :width] = self._tables
            self._tables = tables


@dataclass(frozen=True)
class PagedStep:
    """Attention of one new token a row to all tokens of its row (see `paged_attention`)."""

    store: Floats  # shape (layers, 2, pages, PAGE, key-value heads, head size)
    tables: Ids
    prompts: Ids
    lengths: Ids

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Attend to the new tokens, which are stored, and to those before them."""
        layer, query, key, value, scale, window = inputs
        found = torch.empty(query.shape)
        paged_attention(query.shape[3])(
            *(x.squeeze(2).contiguous().numpy() for x in (query, key, value)),
            *self.store[layer],
            self.tables,
            self.prompts,
            self.lengths,
            np.iinfo(np.int64).max // 2 if window is None else window,
            np.float32(scale),
            found.squeeze(2).numpy(),
        )
        return found
