"""A pytest plug-in: products of matrices and attention with other last digits, as elsewhere.

`-p other_arithmetic --last-digits alternating` moves each result by one unit in the last place, in
a fixed pattern by its position. So what runs twice on one path stays equal to the bit; two paths to
one result differ as they do on a processor with other kernels. scripts/test_arithmetic.sh runs it.
"""

from functools import lru_cache

import pytest
import torch

LIBRARY = pytest.StashKey[torch.library.Library]()

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot")
"""What `linear`, `matmul`, `einsum` and their gradients come down to on a CPU."""

ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu",)

BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}
"""Integers of the same bits: the next one is the next number away from 0."""

PATTERNS = {
    "alternating": lambda place: place % 2 * 2 - 1,
    "scattered": lambda place: (place * 2654435761 >> 16) % 3 - 1,  # two of three move
}


def pytest_addoption(parser):
    parser.addoption("--last-digits", choices=PATTERNS, help="how last digits are moved")


def pytest_configure(config):
    if pattern := config.getoption("--last-digits"):
        config.stash[LIBRARY] = moved_library(PATTERNS[pattern])


def moved_library(pattern):
    """Replace torch's own kernels for as long as the library that is returned lives."""
    library = torch.library.Library("aten", "IMPL")
    for name in (*PRODUCTS, *ATTENTION):
        kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
        library.impl(name, moved(kernel, pattern), "CPU", with_keyset=True)
    return library


def moved(kernel, pattern):
    def run(keyset, *args, **kwargs):
        found = kernel.call_boxed(keyset, *args, **kwargs)
        if isinstance(found, tuple):
            return (move(found[0], pattern), *found[1:])
        return move(found, pattern)

    return run


def move(values, pattern):
    """Move by a unit in the last place; what is exactly 0, or not finite, is so everywhere."""
    if values.dtype not in BITS or not values.numel():
        return values
    units = units_of(pattern, values.numel(), BITS[values.dtype]).view(values.shape)
    bits = values.contiguous().view(units.dtype) + units
    moves = values.isfinite() & (values != 0)
    return torch.where(moves, bits.view(values.dtype), values)


@lru_cache(1024)
def units_of(pattern, count, dtype):
    return pattern(torch.arange(count)).to(dtype)
