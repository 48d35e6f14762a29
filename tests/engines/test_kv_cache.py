"""What slots keep of their responses, and the attention to it."""

import numpy as np
import pytest
import torch
from closeness import assert_close

from rollwise.engines.attention import LayerInputs
from rollwise.engines.kv_cache import BucketedCache

SLOTS, LAYERS, HEADS, GROUP = 24, 2, 2, 3
SIZE = 32
"""Of a head."""


def attention_of(query, keys, values, window):
    """Attention of one token, by definition; shapes (heads, size) and (key heads, T, size)."""
    seen = slice(None) if window is None else slice(-window, None)
    scores = query.view(HEADS, GROUP, SIZE) @ keys[:, seen].transpose(1, 2) * SIZE**-0.5
    return (scores.softmax(-1) @ values[:, seen]).reshape(-1, SIZE)


@pytest.mark.parametrize("window", [None, 5, 40])
def test_a_step_attends_to_all_that_each_slot_holds(window):
    """Slots of prompts of many lengths are filled and emptied at random, and rows grow."""
    rng, random = np.random.default_rng(0), torch.Generator().manual_seed(0)
    cache = BucketedCache(SLOTS, longest=160)
    widths = [bucket.width for bucket in cache._buckets]
    assert widths == [32, 48, 80, 128, 192]  # each is half as wide again as the one before
    lengths = [1, 3, 30, 31, 60, 110]
    prefixes = [
        torch.randn((2, LAYERS, 1, HEADS, length, SIZE), generator=random) for length in lengths
    ]
    held = {}
    for _ in range(45):
        leaving = [slot for slot in held if rng.random() < 0.05 or held[slot].shape[3] >= 150]
        if leaving:
            cache.release(np.array(leaving))
            held = {slot: states for slot, states in held.items() if slot not in leaving}
        free = rng.permutation([slot for slot in range(SLOTS) if slot not in held])
        begun = free[: rng.integers(0, len(free) + 1)]
        if len(begun):
            prefix = prefixes[rng.integers(len(prefixes))]
            cache.fill(begun, prefix)
            held |= {int(slot): prefix[:, :, 0] for slot in begun}
        if not held:
            continue
        step, order = cache.begin_step(), cache.order
        assert sorted(order) == sorted(held)
        assert cache.lengths[order].tolist() == [held[slot].shape[3] for slot in order]
        new = torch.randn((2, LAYERS, len(order), HEADS, 1, SIZE), generator=random)
        query = torch.randn((LAYERS, len(order), HEADS * GROUP, 1, SIZE), generator=random)
        for row, slot in enumerate(order):
            held[slot] = torch.cat([held[slot], new[:, :, row]], dim=3)
        for layer in range(LAYERS):
            found = step.attend(
                LayerInputs(layer, query[layer], *new[:, layer], SIZE**-0.5, window)
            )
            for row, slot in enumerate(order):
                wanted = attention_of(query[layer, row, :, 0], *held[slot][:, layer], window)
                assert_close(found[row, :, 0], wanted)
        cache.lengths[order] += 1
