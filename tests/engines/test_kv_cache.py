"""What slots keep of their responses, and the attention to it."""

import numpy as np
import pytest
import torch
from closeness import assert_close

from rollwise.engines import kv_cache
from rollwise.engines.attention import LayerInputs
from rollwise.engines.kv_cache import SegmentedCache

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
    cache = SegmentedCache(SLOTS, longest=160)
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
            cache.fill([(begun, prefix)])
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


@pytest.mark.parametrize(
    "drawn",
    [
        lambda rng: np.full(96, 700),
        lambda rng: np.minimum(rng.lognormal(np.log(250), 0.7, 96), 700).astype(int) + 1,
        lambda rng: rng.integers(1, 700, 96),
    ],
    ids=["all at the limit", "log-normal", "uniform"],
)
def test_memory_follows_the_lengths_of_responses(drawn, monkeypatch):
    """At every step, as slots are filled again and when the last long responses are left."""
    monkeypatch.setattr(kv_cache, "SMALL", 0)  # what is kept because a copy would cost more
    prompt, slots, rng = 120, 48, np.random.default_rng(0)
    states = torch.empty((2, 4, 1, 2, prompt, 64), dtype=torch.bfloat16, device="meta")
    bytes_a_token = 2 * states[:, :, :, :, 0].numel()
    cache, waiting = SegmentedCache(slots, prompt + 700), drawn(rng).tolist()
    ends, free, worst = np.zeros(slots, dtype=int), list(range(slots)), 0.0
    while waiting or len(free) < slots:
        if waiting and len(free) >= slots // 8:
            begun = [free.pop() for _ in range(min(len(free), len(waiting)))]
            ends[begun] = [prompt + waiting.pop() for _ in begun]
            cache.fill([(np.array([slot]), states) for slot in begun])
        cache.begin_step()
        cache.lengths[cache.order] += 1
        live = int(cache.lengths[cache.order].sum()) * bytes_a_token
        worst = max(worst, cache.allocated / live)
        ended = cache.order[cache.lengths[cache.order] >= ends[cache.order]]
        if len(ended):
            cache.release(ended)
            free += ended.tolist()
    assert 1 < worst <= 1.25
