"""Keys and values of the responses that are being drawn, in slots that are filled again at once."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from rollwise.engines.banks import Banks, Ids
from rollwise.engines.step import Part, PromptPart, Step

READERS = 8
"""Responses that read one copy of their prompt's keys and values, at most."""


class SlotCache:
    """The keys and values of up to `count` responses, each in a slot, whatever their lengths.

    Args:
        count: Slots.
        longest: The most tokens of a prompt and its response.
        shares_prompts: Responses to one prompt read the same keys and values of it, rather than a
            copy each. That takes more operations a step, and far less from memory.

    Attributes:
        lengths: Tokens whose keys and values are known, by slot, shape (count,).
    """

    def __init__(self, count: int, longest: int, shares_prompts: bool) -> None:
        self.lengths: Ids = np.zeros(count, dtype=np.int64)
        self._elsewhere = np.zeros_like(self.lengths)
        self._rows = Banks(longest)
        self._prompts = SharedPrompts(count, longest) if shares_prompts else None

    @property
    def order(self) -> Ids:
        """The slots in use, in the order of the rows of a step."""
        return self._rows.ids

    def fill(self, slots: Ids, prefix: Tensor) -> None:
        """Begin responses to one prompt, given its keys and values.

        Args:
            slots: Where they go, shape (n,).
            prefix: Shape (2, layers, 1, key-value heads, tokens of the prompt, head size).
        """
        tokens = prefix.shape[4]
        self.lengths[slots] = tokens
        if self._prompts is None:
            self._rows.append(slots, prefix, room=tokens + 1)
        else:
            self._prompts.join(slots, prefix)
            self._elsewhere[slots] = tokens
            self._rows.append(slots, prefix[:, :, :, :, :0], room=1)

    def release(self, slots: Ids) -> None:
        """Empty slots."""
        self._rows.release(slots, self._in_rows)
        if self._prompts is not None:
            self._prompts.leave(slots)

    def begin_step(self, device: torch.device) -> Step:
        """Make room for one token more in each row."""
        self._rows.widen(self._in_rows)
        parts, begin = [], 0
        for bank in self._rows:
            parts.append(Part.of(begin, bank.states, self._in_rows[bank.ids], device))
            begin += len(bank.ids)
        prompts = [] if self._prompts is None else self._prompts.parts(self, device)
        return Step(parts, prompts)

    @property
    def _in_rows(self) -> Ids:
        """Tokens whose keys and values are in a row of the slot's own, shape (count,)."""
        return self.lengths - self._elsewhere


class SharedPrompts:
    """Keys and values of prompts, each once for several of the responses in slots.

    Args:
        slots: How many there are.
        longest: The most tokens of a prompt.
    """

    def __init__(self, slots: int, longest: int) -> None:
        self._rows = Banks(longest)
        self._copy_in: Ids = np.zeros(slots, dtype=np.int64)
        self._readers: Ids = np.zeros(slots, dtype=np.int64)
        self._lengths: Ids = np.zeros(slots, dtype=np.int64)
        self._free = list(range(slots))
        self._prefix_of: dict[int, Tensor] = {}
        self._copies_of: defaultdict[int, list[int]] = defaultdict(list)

    def join(self, slots: Ids, prefix: Tensor) -> None:
        """Have slots read a prompt, of copies with fewer readers than most, or else of new ones."""
        copies = self._copies_of[id(prefix)]
        places = [copy for copy in copies for _ in range(READERS - self._readers[copy])]
        while len(places) < len(slots):
            copies.append(self._copy(prefix))
            places += [copies[-1]] * READERS
        self._copy_in[slots] = places[: len(slots)]
        np.add.at(self._readers, self._copy_in[slots], 1)

    def leave(self, slots: Ids) -> None:
        """Have slots read nothing any more; a copy without readers is dropped."""
        copies = self._copy_in[slots]
        np.subtract.at(self._readers, copies, 1)
        unread = np.unique(copies[self._readers[copies] == 0])
        for copy in unread.tolist():
            key = id(self._prefix_of.pop(copy))
            self._copies_of[key].remove(copy)
            if not self._copies_of[key]:
                del self._copies_of[key]
            self._free.append(copy)
        self._rows.release(unread, self._lengths)

    def parts(self, cache: SlotCache, device: torch.device) -> list[PromptPart]:
        """Cut the prompts that a step reads by banks."""
        order = cache.order
        copies, positions = self._copy_in[order], cache.lengths[order]
        place = np.empty_like(self._lengths)
        found = []
        for bank in self._rows:
            place.fill(-1)
            place[bank.ids] = np.arange(len(bank.ids))
            rows = np.flatnonzero(place[copies] >= 0)
            lengths, read = self._lengths[bank.ids], place[copies[rows]]
            found.append(PromptPart.of(bank.states, lengths, rows, read, positions, device))
        return found

    def _copy(self, prefix: Tensor) -> int:
        copy = self._free.pop()
        self._prefix_of[copy] = prefix  # while it is kept here, its id is no other's
        self._lengths[copy] = prefix.shape[4]
        self._rows.append(np.array([copy]), prefix, room=prefix.shape[4])
        return copy


def worth_sharing(device: torch.device) -> bool:
    """Whether to share prompts: on a CPU memory costs most, on a GPU each further operation."""
    return device.type == "cpu"
