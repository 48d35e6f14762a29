"""Attention over pages in float32, compiled for a CPU by Numba."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np

PAGE = 16
"""Tokens on a page of keys or values; a multiple of `ABREAST`."""

ABREAST = 4
"""Tokens that attention takes at a time."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile at the first call, for any thread, and cache the result on disk if possible."""
    options = {"nogil": True, "fastmath": True, "error_model": "numpy"}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        compiled = numba.njit(**options)(function)
    return compiled


@cache
def paged_attention(head_size: int) -> Callable[..., None]:
    """Make attention of one new token a row, for heads of a size, which is compiled in.

    Its arguments, all of them arrays of NumPy but for the window and the scale:
        query: Shape (B, heads, size); queries of one key-value head are adjacent.
        key, value: Of the new tokens, shape (B, key-value heads, size); they are stored.
        keys, values: Shape (pages, PAGE, key-value heads, size).
        tables: Pages of each row, first those of its prompt, shape (B, most pages).
        prompts: Tokens of each row's prompt, shape (B,); the next one begins on a page of its own.
        lengths: Tokens of each row before the new one, shape (B,).
        window: The most tokens that a token looks at, itself included.
        scale: Of the products.
        found: Takes the result, shape (B, heads, size).
    """

    # One function, for what is compiled is found again only where it calls no other of ours.
    @_compiled
    def attend(
        query: Any,
        key: Any,
        value: Any,
        keys: Any,
        values: Any,
        tables: Any,
        prompts: Any,
        lengths: Any,
        window: int,
        scale: Any,
        found: Any,
    ) -> None:
        rows, heads = query.shape[0], query.shape[1]
        group = heads // key.shape[1]
        asked = np.empty((heads, head_size), dtype=np.float32)
        mixed = np.empty((heads, head_size), dtype=np.float32)
        totals = np.empty(heads, dtype=np.float32)
        scores = np.empty((heads, tables.shape[1], PAGE), dtype=np.float32)
        # The tokens of each page that the row's new token looks at, the end not included.
        firsts = np.empty(tables.shape[1], dtype=np.int64)
        ends = np.empty(tables.shape[1], dtype=np.int64)
        for row in range(rows):
            prompt, length, table = prompts[row], lengths[row], tables[row]
            prompt_pages = (prompt + PAGE - 1) // PAGE
            pages = prompt_pages + (length - prompt) // PAGE + 1
            for p in range(pages):
                begin = p * PAGE if p < prompt_pages else prompt + (p - prompt_pages) * PAGE
                end = prompt if p < prompt_pages else length + 1
                ends[p] = min(PAGE, end - begin)
                firsts[p] = max(0, length + 1 - window - begin)
                if firsts[p] >= ends[p]:
                    firsts[p] = ends[p] = 0
            place = (length - prompt) % PAGE
            keys[table[pages - 1], place] = key[row]
            values[table[pages - 1], place] = value[row]
            asked[:] = query[row] * scale
            mixed[:] = 0

            # Products with keys.
            for p in range(pages):
                page = keys[table[p]]
                for i in range(0, ends[p], ABREAST):
                    for h in range(heads):
                        of = h // group
                        s0 = s1 = s2 = s3 = np.float32(0)
                        for d in range(head_size):
                            s0 += asked[h, d] * page[i, of, d]
                            s1 += asked[h, d] * page[i + 1, of, d]
                            s2 += asked[h, d] * page[i + 2, of, d]
                            s3 += asked[h, d] * page[i + 3, of, d]
                        scores[h, p, i], scores[h, p, i + 1] = s0, s1
                        scores[h, p, i + 2], scores[h, p, i + 3] = s2, s3

            # Weights, 0 where nothing is looked at.
            for h in range(heads):
                top, total = np.float32(-3e38), np.float32(0)
                for p in range(pages):
                    for i in range(firsts[p], ends[p]):
                        top = max(top, scores[h, p, i])
                for p in range(pages):
                    for i in range(PAGE):
                        if firsts[p] <= i < ends[p]:
                            scores[h, p, i] = math.exp(scores[h, p, i] - top)
                            total += scores[h, p, i]
                        else:
                            scores[h, p, i] = 0
                totals[h] = total

            # Sums of values.
            for p in range(pages):
                page = values[table[p]]
                for i in range(0, ends[p], ABREAST):
                    for h in range(heads):
                        of = h // group
                        w0, w1 = scores[h, p, i], scores[h, p, i + 1]
                        w2, w3 = scores[h, p, i + 2], scores[h, p, i + 3]
                        for d in range(head_size):
                            mixed[h, d] += (
                                w0 * page[i, of, d]
                                + w1 * page[i + 1, of, d]
                                + w2 * page[i + 2, of, d]
                                + w3 * page[i + 3, of, d]
                            )
            for h in range(heads):
                for d in range(head_size):
                    found[row, h, d] = mixed[h, d] / totals[h]

    return attend
