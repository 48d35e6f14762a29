"""Compiled arithmetic for float32 on a CPU, where calls of `torch` would take longer than it.

What each function computes is said by its name; `torch` has the reference.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from torch import Tensor

PAGE = 16
"""Tokens on a page of keys or values; a multiple of `ABREAST`."""

ABREAST = 4
"""Tokens that attention takes at a time."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile at the first call, for any thread, and keep the result on the disk if it can be."""
    options = {"nogil": True, "fastmath": True, "error_model": "numpy"}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in can be written
        compiled = numba.njit(**options)(function)
    return compiled


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm over the last dimension."""
    x = x.contiguous()
    found = torch.empty_like(x)
    size = x.shape[-1]
    _rms_norm(
        x.view(-1, size).numpy(),
        weight.detach().numpy(),
        np.float32(epsilon),
        found.view(-1, size).numpy(),
    )
    return found


@_compiled
def _rms_norm(x: Any, weight: Any, epsilon: Any, found: Any) -> None:
    rows, size = x.shape
    for row in range(rows):
        total = np.float32(0)
        for i in range(size):
            total += x[row, i] * x[row, i]
        scale = np.float32(1) / math.sqrt(total / np.float32(size) + epsilon)
        for i in range(size):
            found[row, i] = x[row, i] * scale * weight[i]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads by position, in place.

    Args:
        x: Shape (B, T, heads, size), contiguous.
        cos: Shape (B, T, 1, size).
        sin: The same; the first half negated.
    """
    heads, size = x.shape[2:]
    angles = cos.numpy().reshape(-1, size), sin.numpy().reshape(-1, size)
    _rotate(x.view(-1, heads, size).numpy(), *angles)
    return x


@_compiled
def _rotate(x: Any, cos: Any, sin: Any) -> None:
    rows, heads, size = x.shape
    half = size // 2
    for row in range(rows):
        for head in range(heads):
            for i in range(half):
                a, b = x[row, head, i], x[row, head, half + i]
                x[row, head, i] = a * cos[row, i] + b * sin[row, i]
                x[row, head, half + i] = b * cos[row, half + i] + a * sin[row, half + i]


@cache
def paged_attention(head_size: int) -> Callable[..., None]:
    """Make attention of one new token a row, for heads of a size, which is compiled in.

    Its arguments, all of them arrays of NumPy but for the window and the scale:
        query: Shape (B, heads, size); a key-value head's queries follow each other.
        key, value: Of the new tokens, shape (B, key-value heads, size); are kept.
        keys, values: Shape (pages, key-value heads, PAGE, size).
        tables: Pages of each row, first those of its prompt, shape (B, most pages).
        prompts: Tokens of each row's prompt, shape (B,); the next one begins on a page of its own.
        lengths: Tokens of each row before the new one, shape (B,).
        window: The most tokens that a token looks at, itself included.
        scale: Of the products.
        found: Takes the result, shape (B, heads, size).
    """

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
        rows, heads, group = query.shape[0], key.shape[1], query.shape[1] // key.shape[1]
        asked = np.empty(head_size, dtype=np.float32)
        mixed = np.empty(head_size, dtype=np.float32)
        scores = np.empty((tables.shape[1], PAGE), dtype=np.float32)
        # Of each page: the first and the last token, but one, that the row's new token looks at.
        firsts = np.empty(tables.shape[1], dtype=np.int64)
        ends = np.empty(tables.shape[1], dtype=np.int64)
        for row in range(rows):
            prompt, length, table = prompts[row], lengths[row], tables[row]
            prompt_pages = (prompt + PAGE - 1) // PAGE
            pages = prompt_pages + (length - prompt) // PAGE + 1
            for p in range(pages):
                begin = p * PAGE if p < prompt_pages else prompt + (p - prompt_pages) * PAGE
                end = prompt if p < prompt_pages else length + 1
                firsts[p] = max(0, length + 1 - window - begin)
                ends[p] = min(PAGE, end - begin)
            page, place = table[pages - 1], (length - prompt) % PAGE
            for head in range(heads):
                new_key, new_value = keys[page, head, place], values[page, head, place]
                for d in range(head_size):
                    new_key[d] = key[row, head, d]
                    new_value[d] = value[row, head, d]
                for member in range(head * group, (head + 1) * group):
                    for d in range(head_size):
                        asked[d] = query[row, member, d] * scale
                        mixed[d] = 0
                    top = np.float32(-3e38)
                    for p in range(pages):
                        if firsts[p] < ends[p]:
                            own, score = keys[table[p], head], scores[p]
                            for i in range(0, ends[p], ABREAST):
                                s0 = s1 = s2 = s3 = np.float32(0)
                                for d in range(head_size):
                                    s0 += asked[d] * own[i, d]
                                    s1 += asked[d] * own[i + 1, d]
                                    s2 += asked[d] * own[i + 2, d]
                                    s3 += asked[d] * own[i + 3, d]
                                score[i], score[i + 1], score[i + 2], score[i + 3] = s0, s1, s2, s3
                            for i in range(firsts[p], ends[p]):
                                top = max(top, score[i])
                    total = np.float32(0)
                    for p in range(pages):
                        if firsts[p] < ends[p]:
                            own, weight = values[table[p], head], scores[p]
                            for i in range(firsts[p], ends[p]):
                                weight[i] = math.exp(weight[i] - top)
                                total += weight[i]
                            weight[: firsts[p]] = 0
                            weight[ends[p] :] = 0
                            for i in range(0, ends[p], ABREAST):
                                w0, w1, w2, w3 = (
                                    weight[i],
                                    weight[i + 1],
                                    weight[i + 2],
                                    weight[i + 3],
                                )
                                for d in range(head_size):
                                    mixed[d] += (
                                        w0 * own[i, d]
                                        + w1 * own[i + 1, d]
                                        + w2 * own[i + 2, d]
                                        + w3 * own[i + 3, d]
                                    )
                    for d in range(head_size):
                        found[row, member, d] = mixed[d] / total

    return attend
