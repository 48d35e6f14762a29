"""Draws in proportion to 1 − s: exact frequencies, and the corners."""

import itertools

import numpy as np

from rollwise.prompts import Prioritized

PASS_RATES = [0.0, 0.25, 0.5, 0.75, 1.0]


def told(batch_size, **settings):
    sampler = Prioritized(range(5), batch_size, **settings)
    sampler.tell(range(5), [0, 2, 4, 6, 8], [8] * 5)
    return sampler


def within_errors(counts, times, shares):
    """Each count within 4 standard errors of its share."""
    shares = np.array(shares)
    errors = np.abs(np.array(counts) / times - shares)
    return np.all(errors <= 4 * np.sqrt(shares * (1 - shares) / times))


def test_one_prompt_is_drawn_in_proportion():
    """Weights 1, .75, .5, .25, 0 of a sum of 2.5."""
    sampler, times = told(1), 20_000
    counts = np.zeros(5)
    for _ in range(times):
        counts[sampler.ask()] += 1
    assert within_errors(counts, times, [0.4, 0.3, 0.2, 0.1, 0.0])


def test_two_prompts_are_drawn_one_after_the_other():
    """P(first i, then j) = w_i/W · w_j/(W − w_i), for all twelve ordered pairs."""
    sampler, times = told(2), 20_000
    weights = [1 - s for s in PASS_RATES]
    counts = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for _ in range(times):
        counts[tuple(sampler.ask())] += 1
    total = sum(weights)
    shares = [weights[i] / total * weights[j] / (total - weights[i]) for i, j in counts]
    assert within_errors(list(counts.values()), times, shares)


def test_solved_prompts_come_last_and_uniformly():
    sampler = Prioritized(range(6), 3)
    sampler.tell(range(4), [8] * 4, [8] * 4)
    counts = np.zeros(6)
    for _ in range(4000):
        batch = sampler.ask()
        assert set(batch[:2]) == {4, 5}
        counts[batch[2]] += 1
    assert within_errors(counts[:4], 4000, [0.25] * 4)


def test_unvisited_prompts_count_as_failed_or_as_set():
    failed = Prioritized("ab", 1)
    failed.tell(["a"], [8], [8])
    assert {failed.ask()[0] for _ in range(50)} == {"b"}
    sampler, times = Prioritized("ab", 1, unvisited=0.75), 10_000
    sampler.tell(["a"], [0], [8])
    counts = np.zeros(2)
    for _ in range(times):
        counts["ab".index(sampler.ask()[0])] += 1
    assert within_errors(counts, times, [0.8, 0.2])


def test_before_a_visit_nothing_is_expected():
    sampler = Prioritized("ab", 1, unvisited=0.75)
    sampler.tell(["a"], [3], [4])
    assert np.array_equal(sampler.expected_pass_rates(["a", "b"]), [0.75, np.nan], equal_nan=True)
    assert sampler.metrics() == {"visited": 0.5}
