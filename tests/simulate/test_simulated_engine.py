"""The simulated engine: virtual time by hand, the laws of its responses, a session driven by it."""

import asyncio
import heapq
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rollwise import loops
from rollwise.sampling import Draw, draw_seed
from rollwise.simulate.engine import Lengths, SimulatedEngine
from rollwise.step import LostDraw

RATES = {"right": 1.0, "wrong": 0.0}
TEN = Lengths(median=10, sigma=0.0, longest=100, incorrect_factor=3.0)
"""10 tokens for "right", 30 for "wrong"."""


def draws_of(*keys):
    """A draw of each of `keys`, numbered from 0."""
    return [Draw(key, i, draw_seed(0, 0, key, i)) for i, key in enumerate(keys)]


def engine_of(slots, rates=RATES, lengths=TEN, **options):
    return SimulatedEngine(rates, lengths, slots, **options)


def run(engine, draws, cancelled={}):  # noqa: B006  read alone
    """Begin the draws at once: draw -> (when it was complete, its response), in that order.

    At the end of one in `cancelled`, the others named there are cancelled: they raise `LostDraw`.
    """
    found, tasks = {}, {}

    async def note(draw):
        try:
            response = await engine.complete(draw, ())
        except LostDraw as lost:
            response = lost
        found[draw] = engine.now, response
        for other in cancelled.get(draw, ()):
            tasks[other].cancel()

    async def all_of():
        tasks.update({draw: asyncio.create_task(note(draw)) for draw in draws})
        await asyncio.gather(*tasks.values())

    loops.run(all_of())
    return found


def observe(draws, **options):
    """Lengths, correctness and truncation of `draws`, each an array."""
    done = [c for _, c in run(engine_of(len(draws), **options), draws).values()]
    columns = [(len(c.tokens), c.text == "correct", c.truncated) for c in done]
    return map(np.array, zip(*columns, strict=True))


# ---- virtual time ----


@given(st.integers(1, 5), st.lists(st.integers(0, 10**6), max_size=30, unique=True))
def test_completions_come_when_a_line_of_customers_would_be_served(slots, seeds):
    """Each customer goes to the counter that is free first."""
    lengths = Lengths(median=20, sigma=1.0, longest=90)
    draws = [Draw("p", i, seed) for i, seed in enumerate(seeds)]
    engine = engine_of(slots, {"p": 0.5}, lengths, seconds_per_token=0.5, prefill=1.0)
    done = run(engine, draws)
    counters, total = [0.0] * slots, 0
    for draw in draws:
        end, completion = done[draw]
        assert end == counters[0] + 1 + len(completion.tokens) / 2
        heapq.heapreplace(counters, end)
        total += len(completion.tokens)
    assert engine.now == max(counters)
    assert (engine.tokens, engine.busy) == (total, total / 2 + len(draws))


# ---- cancelling ----


def test_a_cancelled_draw_costs_what_it_has_drawn_and_frees_its_slot():
    """At 7 seconds "wrong" has had 2 of prefill and 5 of its 15 seconds of drawing: 10 tokens."""
    engine = engine_of(2, seconds_per_token=0.5, prefill=2.0)
    wrong, right, queued, last = draws_of("wrong", "right", "wrong", "right")
    found = run(engine, [wrong, right, queued, last], cancelled={right: [wrong, queued]})
    assert list(found) == [right, wrong, queued, last]
    assert [found[draw][1].tokens for draw in (wrong, queued)] == [10, 0]
    assert (engine.now, engine.busy, engine.tokens) == (14.0, 21.0, 30)


@given(st.integers(1, 40), st.sampled_from([0.1, 0.007, 1 / 3]))
def test_partial_tokens_are_counted_whatever_the_rounding_of_the_clock(count, pace):
    """A response of 10,000 tokens is stopped after `count` of 7 tokens in the other slot."""
    engine = engine_of(2, lengths=Lengths(7, 0.0, 10**4, 10**4), seconds_per_token=pace)
    wrong, *right = draws_of("wrong", *["right"] * count)
    found = run(engine, [wrong, *right], cancelled={right[-1]: [wrong]})
    assert list(found) == [*right, wrong]
    assert found[wrong][1].tokens == 7 * count


# ---- laws ----


@pytest.mark.parametrize("seeds", [range(20_000), [d.seed for d in draws_of(*"p" * 20_000)]])
def test_lengths_and_correctness_have_the_given_law(seeds):
    """P(length ≤ t) = Φ(ln(t / median) / σ) at whole t below the cut; independent of correctness.

    Kolmogorov's statistic of 20,000 responses is below 2.2 / √20,000 but once in 10,000 times.
    """
    draws = [Draw("p", i, seed) for i, seed in enumerate(seeds)]
    law = Lengths(median=300, sigma=0.8, longest=1000)
    tokens, correct, truncated = observe(draws, rates={"p": 0.3}, lengths=law)
    bound = 2.2 / np.sqrt(len(draws))
    t = np.arange(1, 1000)
    expected = stats.norm.cdf(np.log(t / 300) / 0.8)
    for group in (tokens, tokens[correct], tokens[~correct]):
        empirical = np.searchsorted(np.sort(group), t, side="right") / len(group)
        assert np.abs(empirical - expected).max() < 2.2 / np.sqrt(len(group))
    assert abs(correct.mean() - 0.3) < bound
    assert abs(truncated.mean() - stats.norm.sf(np.log(1000 / 300) / 0.8)) < bound
    assert (tokens.min() >= 1, tokens.max()) == (True, 1000)
    assert (tokens[truncated] == 1000).all()


@pytest.mark.parametrize(
    ("lengths", "uniform", "correct", "expected"),
    [
        (Lengths(100, 0.0, 100), 0.9, True, (100, False)),
        (Lengths(100, 0.0, 99), 0.9, True, (99, True)),
        (Lengths(100.5, 0.0, 200), 0.1, True, (101, False)),
        (Lengths(0.01, 0.0, 200), 0.1, True, (1, False)),
        (Lengths(100, 1.0, 1000), NormalDist().cdf(1), True, (272, False)),  # ⌈100·e⌉
        (Lengths(100, 1.0, 1000, 0.5), NormalDist().cdf(1), False, (136, False)),
        (Lengths(100, 10.0, 1000), 1 - 2**-53, True, (1000, True)),
        (Lengths(100, 10.0, 1000), 2**-53, True, (1, False)),
    ],
)
def test_a_length_is_the_quantile_rounded_up_and_cut(lengths, uniform, correct, expected):
    assert lengths.length(uniform, correct) == expected
