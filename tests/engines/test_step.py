"""The attention of a step, over rows of their own and prompts that are shared."""

import numpy as np
import pytest
import torch

from rollwise.engines.slots import READERS, SlotCache

SLOTS, LAYERS, HEADS, GROUP, SIZE = 24, 2, 2, 3, 8
CPU = torch.device("cpu")


def attention_of(query, keys, values, window):
    """Attention of one token, by definition; shapes (heads, size) and (key heads, T, size)."""
    seen = slice(None) if window is None else slice(-window, None)
    scores = query.view(HEADS, GROUP, SIZE) @ keys[:, seen].transpose(1, 2) * SIZE**-0.5
    return (scores.softmax(-1) @ values[:, seen]).reshape(-1, SIZE)


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize("shares_prompts", [True, False])
def test_a_step_attends_to_all_that_each_slot_holds(shares_prompts, window):
    """Slots of prompts of many lengths are filled and emptied at random, and rows grow."""
    rng, random = np.random.default_rng(0), torch.Generator().manual_seed(0)
    cache = SlotCache(SLOTS, 160, shares_prompts)
    lengths = [1, 3, 30, 31, 60, 110]
    prefixes = [
        torch.randn((2, LAYERS, 1, HEADS, length, SIZE), generator=random) for length in lengths
    ]
    held = {}
    most_of_one = 0
    for _ in range(60):
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
            most_of_one = max(most_of_one, len(begun))
        if not held:
            continue
        step, order = cache.begin_step(CPU), cache.order
        assert sorted(order) == sorted(held)
        assert cache.lengths[order].tolist() == [held[slot].shape[3] for slot in order]
        new = torch.randn((2, LAYERS, len(order), HEADS, 1, SIZE), generator=random)
        query = torch.randn((LAYERS, len(order), HEADS * GROUP, 1, SIZE), generator=random)
        for row, slot in enumerate(order):
            held[slot] = torch.cat([held[slot], new[:, :, row]], dim=3)
        for layer in range(LAYERS):
            found = step.attend(layer, query[layer], *new[:, layer], None, window)
            for row, slot in enumerate(order):
                wanted = attention_of(query[layer, row, :, 0], *held[slot][:, layer], window)
                torch.testing.assert_close(found[row, :, 0], wanted, rtol=1e-4, atol=1e-5)
        cache.lengths[order] += 1
    assert most_of_one > READERS


def test_a_prompt_is_kept_once_for_several_responses_as_long_as_one_is_drawn():
    cache = SlotCache(SLOTS, 160, shares_prompts=True)
    prefix = torch.ones((2, LAYERS, 1, HEADS, 20, SIZE))
    copies = cache._prompts._rows
    cache.fill(np.arange(READERS - 2), prefix)
    assert len(copies.ids) == 1
    cache.fill(np.array([20, 21]), prefix)
    assert len(copies.ids) == 1
    cache.fill(np.array([22]), prefix)
    assert len(copies.ids) == 2
    cache.release(np.array([22, 3]))
    assert len(copies.ids) == 1
    cache.fill(np.array([3]), prefix)
    assert len(copies.ids) == 1
    cache.release(cache.order)
    assert len(copies.ids) == 0
    assert not cache._prompts._copies_of
    assert sorted(cache._prompts._free) == list(range(SLOTS))
