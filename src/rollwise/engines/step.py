"""Attention of the tokens that are drawn in a step, one a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rollwise.engines.banks import Ids


@dataclass(frozen=True)
class Part:
    """The rows of one bank in a step.

    Attributes:
        rows: Which rows of the step's they are.
        store: The bank's keys and values, shape (2, layers, rows in use, heads, width, size).
        longest: Tokens of the longest row, the new one included.
        places: Where each row's new token goes, shape (rows,).
        flat_places: The same for each of its heads, counted through a layer's keys, shape
            (rows * heads,).
    """

    rows: slice
    store: Tensor
    longest: int
    places: Tensor
    flat_places: Tensor

    @classmethod
    def of(cls, begin: int, store: Tensor, lengths: Ids, device: torch.device) -> Self:
        """Cut a bank to the rows in use."""
        count, (heads, width) = len(lengths), store.shape[3:5]
        begins = np.arange(count * heads) * width
        return cls(
            rows=slice(begin, begin + count),
            store=store[:, :, :count],
            longest=int(lengths.max()) + 1,
            places=torch.from_numpy(lengths).to(device),
            flat_places=torch.from_numpy(begins + lengths.repeat(heads)).to(device),
        )

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """For `scores` of a row's token, shape (rows, 1, 1, longest)."""
        ages = self.places[:, None] - torch.arange(self.longest, device=self.places.device)
        hidden = ages < 0
        if window is not None:
            hidden |= ages >= window
        return _mask(hidden, dtype)[:, None, None]

    def keep(self, half: int, layer: int, states: Tensor) -> Tensor:
        """Put in the new tokens' keys (`half` 0) or values (1), shape (B, heads, 1, size).

        Returns:
            Those of all tokens, shape (rows, heads, longest, size).
        """
        kept = self.store[half, layer]
        kept.view(-1, kept.shape[-1]).index_copy_(
            0, self.flat_places, states[self.rows].flatten(0, 2)
        )
        return kept[:, :, : self.longest]


@dataclass(frozen=True)
class PromptPart:
    """The prompts of one bank in a step, and the rows that read them.

    Attributes:
        store: The bank's keys and values, shape (2, layers, prompts, heads, width, size).
        lengths: Tokens of each prompt, shape (prompts,).
        longest: Tokens of the longest.
        even: All prompts are as long as that.
        rows: Which of the step's rows read them, shape (n,).
        prompts: Which prompt each of these reads, shape (n,).
        ranks: The how many-th reader of its prompt each of these is, shape (n,).
        readers: The rows that read each prompt, shape (prompts, most readers); any rows where a
            prompt has fewer.
        positions: Where in their rows the new tokens of `readers` are, in the same shape.
    """

    store: Tensor
    lengths: Tensor
    longest: int
    even: bool
    rows: Ids
    prompts: Tensor
    ranks: Tensor
    readers: Tensor
    positions: Tensor

    @classmethod
    def of(
        cls,
        store: Tensor,
        lengths: Ids,
        rows: Ids,
        prompts: Ids,
        positions: Ids,
        device: torch.device,
    ) -> Self:
        """Count and list the readers; `positions` are those of all rows."""
        counts = np.bincount(prompts, minlength=len(lengths))
        ranks = np.empty_like(prompts)
        begins = np.cumsum(counts) - counts
        ranks[np.argsort(prompts, kind="stable")] = np.arange(len(prompts)) - begins.repeat(counts)
        readers = np.full((len(lengths), counts.max()), rows[0])
        readers[prompts, ranks] = rows
        return cls(
            store=store,
            lengths=torch.from_numpy(lengths).to(device),
            longest=int(lengths.max()),
            even=bool((lengths == lengths[0]).all()),
            rows=rows,
            prompts=torch.from_numpy(prompts).to(device),
            ranks=torch.from_numpy(ranks).to(device),
            readers=torch.from_numpy(readers).to(device),
            positions=torch.from_numpy(positions[readers]).to(device),
        )

    def mask(self, window: int | None, dtype: torch.dtype, group: int) -> Tensor | None:
        """For scores of `group` queries a reader, shape (prompts, 1, 1 or queries, longest)."""
        if window is None and self.even:
            return None
        places = torch.arange(self.longest, device=self.lengths.device)
        hidden = places >= self.lengths[:, None, None]
        if window is not None:
            hidden = hidden | (self.positions[:, :, None] - places >= window)
            hidden = hidden.repeat_interleave(group, dim=1)
        return _mask(hidden, dtype)[:, None]

    def attend(self, layer: int, query: Tensor, mask: Tensor | None) -> "Partial":
        """Attend from `rows`, given the queries of all, shape (B, heads, group, size)."""
        _, heads, group, size = query.shape
        prompts, readers = self.readers.shape
        asked = query.index_select(0, self.readers.flatten())
        asked = asked.view(prompts, readers, heads, group, size).transpose(1, 2)
        keys, values = self.store[:, layer, :, :, : self.longest]
        found = Partial.of(asked.reshape(prompts, heads, -1, size), keys, values, mask)
        spread = (x.view(prompts, heads, readers, group, -1) for x in found)
        return Partial(*(x[self.prompts, :, self.ranks] for x in spread))


class Partial(NamedTuple):
    """Attention to some of a row's tokens, to be merged with that to its others.

    Hydragen (Juravsky et al. 2024, section 3.1) attends to prefixes and suffixes so.

    Attributes:
        values: Sums of values, weighted by exp(score - top), shape (B, heads, group, size).
        top: The largest scores, shape (B, heads, group, 1).
        weight: Sums of these weights, in the same shape.
    """

    values: Tensor
    top: Tensor
    weight: Tensor

    @classmethod
    def of(cls, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> "Partial":
        """Attend by plain products, on a CPU the fastest for so few queries."""
        scores = (query @ keys.transpose(2, 3)).float()
        if mask is not None:
            scores += mask
        top = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        return cls(weights.to(values.dtype) @ values, top, weights.sum(dim=-1, keepdim=True))

    @classmethod
    def of_rows(cls, parts: "Sequence[Partial]", order: Tensor | None = None) -> "Partial":
        """Put parts of the rows together, in their order."""
        together = [_together(x) for x in zip(*parts, strict=True)]
        return cls(*(x if order is None else x.index_select(0, order) for x in together))

    def merge(self, other: "Partial") -> Tensor:
        """Attend to the tokens of both."""
        top = torch.maximum(self.top, other.top)
        ours, theirs = (self.top - top).exp_(), (other.top - top).exp_()
        weight = (self.weight * ours).addcmul_(other.weight, theirs)
        return ((self.values * ours).addcmul_(other.values, theirs) / weight).to(self.values.dtype)


def _mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to scores: 0, or so little that nothing is left of them.

    Not −∞, of which nothing could be told apart where all is hidden.
    """
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)


class Step:
    """Attention of one new token a row to all tokens of its row, and to the prompt it shares.

    Args:
        parts: The rows, bank by bank.
        prompts: What rows have of their prompts elsewhere, of each; or nothing at all.
    """

    def __init__(self, parts: Sequence[Part], prompts: Sequence[PromptPart] = ()) -> None:
        self._parts, self._prompts = parts, prompts
        self._masks: dict[int | None, list[Tensor]] = {}
        self._prompt_masks: dict[int | None, list[Tensor | None]] = {}
        readers = np.concatenate([part.rows for part in prompts]) if prompts else np.empty(0)
        self._order = torch.from_numpy(np.argsort(readers)) if len(prompts) > 1 else None

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float | None,
        window: int | None,
    ) -> Tensor:
        """Keep the new keys and values, and attend.

        Args:
            layer: Index of the layer.
            query: Shape (B, heads, 1, head size); a key-value head's queries follow each other.
            key: Shape (B, key-value heads, 1, head size).
            value: The same.
            scale: Of the products; by default 1 / √(head size).
            window: The most tokens that a token looks at, itself included; None for all.

        Returns:
            Shape (B, heads, 1, head size).
        """
        asked = query.reshape(*key.shape[:2], -1, query.shape[-1])
        asked = asked * (query.shape[-1] ** -0.5 if scale is None else scale)
        if window not in self._masks:
            self._make_masks(window, asked)
        own = [
            (asked[part.rows], part.keep(0, layer, key), part.keep(1, layer, value), mask)
            for part, mask in zip(self._parts, self._masks[window], strict=True)
        ]
        if not self._prompts:
            found = _together([_attend(*part) for part in own])
        else:
            shared = [
                part.attend(layer, asked, mask)
                for part, mask in zip(self._prompts, self._prompt_masks[window], strict=True)
            ]
            found = Partial.of_rows([Partial.of(*part) for part in own]).merge(
                Partial.of_rows(shared, self._order)
            )
        return found.view(query.shape)

    def _make_masks(self, window: int | None, asked: Tensor) -> None:
        dtype = torch.float32 if self._prompts else asked.dtype
        self._masks[window] = [part.mask(window, dtype) for part in self._parts]
        group = asked.shape[2]
        self._prompt_masks[window] = [part.mask(window, dtype, group) for part in self._prompts]


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=1.0)


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
