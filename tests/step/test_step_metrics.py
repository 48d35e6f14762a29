"""The figures of a step, from pools written by hand."""

import json

import numpy as np
import pytest

from rollwise.engines import Completion
from rollwise.prompts import CDAS, Prioritized, Retiring, Uniform
from rollwise.sampling import Balanced, FixedCount, RolloutSession, Rounds
from rollwise.step import Episode, RolloutCost, Rollouts, StepRecipe, Usage, make_group
from rollwise.step.ledger import PLACES
from rollwise.step.metrics import belief_metrics, rollout_metrics

LEDGER = dict.fromkeys(PLACES, 0)

# Rounds of 2, at most 3 of them; one correct and one incorrect response end a prompt.
POOLS = {
    "mixed at once": [1, 0],
    "late": [0, 0, 0, 1],
    "never": [1, 1, 1, 1, 1, 1],
}


def make_step(pools=POOLS, zero_variance="drop"):
    """A batch that ended with these pools, and its groups.

    The i-th response has i + 1 tokens of log-probability −i each; the third and later are cut.
    """
    session = RolloutSession(pools, Balanced(1, 1), Rounds(size=2, rounds=3))
    while draws := session.next_draws():
        for draw in draws:
            i = draw.index
            tokens, logprobs = [9] * (i + 1), np.full(i + 1, -i, np.float32)
            completion = Completion(draw, tokens, logprobs, "", truncated=i >= 2)
            session.record(draw, pools[draw.key][i], completion)
    recipe = StepRecipe(group_size=2, zero_variance=zero_variance)
    rng = np.random.default_rng(0)
    groups = [make_group(recipe, pool, rng) for pool in session.pools.values()]
    tokens = sum(len(r.tokens) for pool in session.pools.values() for r in pool.responses)
    return Rollouts(session, cost=RolloutCost(tokens=tokens)), groups


def test_every_figure_by_hand():
    metrics = rollout_metrics(*make_step(), first=2)
    entropy = metrics.pop("entropy")
    assert metrics == {
        # The first two of each: 1 0, 0 0, 1 1.
        "reward": pytest.approx(3 / 6),
        "zero_variance_first": pytest.approx(2 / 3),
        "zero_variance_after": pytest.approx(1 / 3),
        "prompts": 3,
        "trained_groups": 2,
        "draws": 2 + 4 + 6,
        "surplus_draws": 0,
        "draws_per_prompt": 4.0,
        # All three prompts draw two, then two prompts, then one.
        "draws_by_round": pytest.approx([6 / 3, 4 / 3, 2 / 3]),
        "tokens": (1 + 2) + (1 + 2 + 3 + 4) + (1 + 2 + 3 + 4 + 5 + 6),
        "exits": {"satisfied": 2, "exhausted": 1, "futile": 0},
        "failed_draws": 0,
        "lost_draws": 0,
        "response_tokens": 1.5,
        "truncated": 0.0,
        # Groups of two: both of the first prompt, draws 0 and 3 of the second; the third's are
        # all correct. Of the second and third pool, the third to sixth responses are cut.
        "ledger": {
            "draws": LEDGER | {"trained": 4, "spare": 2, "zero_variance": 6},
            "tokens": LEDGER | {"trained": 1 + 2 + 1 + 4, "spare": 2 + 3, "zero_variance": 21},
            "truncated": {"draws": 2 + 4, "tokens": (3 + 4) + (3 + 4 + 5 + 6)},
        },
    }
    # First responses: one token of −log π = 0, two of 1.
    assert entropy == pytest.approx(2 / 3)


def test_the_policy_is_judged_by_the_first_draws_alone():
    """What came after them changes cost and signal, not how good the policy is said to be."""
    sooner = rollout_metrics(*make_step(), first=2)
    later = rollout_metrics(*make_step(POOLS | {"late": [0, 0, 0, 0, 0, 1]}), first=2)
    for name in ("reward", "zero_variance_first", "entropy", "response_tokens", "truncated"):
        assert later[name] == sooner[name]
    assert later["draws"] == sooner["draws"] + 2


def test_episodes_are_counted_by_their_ends():
    session = RolloutSession(["a"], FixedCount(3), Rounds(size=3, rounds=1))
    for draw, end in zip(session.next_draws(), ["done", "truncated", "done"], strict=True):
        session.record(draw, 1.0, Episode(spans=(), usage=Usage(1, turns=2), end=end))
    [pool] = session.pools.values()
    groups = [make_group(StepRecipe(), pool, np.random.default_rng(0))]
    metrics = rollout_metrics(Rollouts(session, cost=RolloutCost(cancelled=4)), groups, first=2)
    assert metrics["ends"] == {"done": 2, "truncated": 1, "failed": 0, "cancelled": 4}
    assert metrics["turns"] == 2


def test_draws_lost_for_good_leave_figures_that_are_numbers():
    """A prompt of which nothing arrived counts as one without signal."""
    session = RolloutSession(["gone", "there"], Balanced(1, 1), Rounds(size=2, rounds=1))
    while draws := session.next_draws():
        for draw in draws:
            if draw.key == "gone":
                session.record_failure(draw)
            else:
                completion = Completion(draw, [1], np.zeros(1, np.float32), "", False)
                session.record(draw, float(draw.index), completion)
    rng = np.random.default_rng(0)
    recipe = StepRecipe(group_size=2)
    groups = [make_group(recipe, pool, rng) for pool in session.pools.values()]
    metrics = rollout_metrics(Rollouts(session), groups, first=2)
    assert (metrics["failed_draws"], metrics["lost_draws"], metrics["draws"]) == (6, 2, 2)
    assert metrics["reward"] == 0.5
    assert metrics["zero_variance_first"] == 0.5
    json.dumps(metrics, allow_nan=False)


def test_beliefs_stand_beside_what_came_of_them():
    """Eighteen prompts, expected in another order than they come in; parts of two or three."""
    keys = list(range(18))
    sampler = Uniform(keys, 1, decay=1.0)
    rates = [(7 * key) % 18 / 18 for key in keys]
    sampler.tell(keys, [round(1800 * rate) for rate in rates], [1800] * 18)
    drawn = [0, *[10] * 17]
    correct = [round(10 * rate) if n else 0 for rate, n in zip(rates, drawn, strict=True)]
    pairs = belief_metrics(sampler, keys, correct, drawn)["pass_rate_by_expected"]
    assert len(pairs) == 8
    # The smallest two that were drawn: 1/18 and 2/18, with 1 of 10 correct each.
    assert pairs[0][0] == pytest.approx((1 + 2 + 3) / 3 / 18, abs=0.01)
    assert pairs[0][1] == pytest.approx((1 + 1 + 2) / 30)
    assert [expected for expected, _ in pairs] == sorted(expected for expected, _ in pairs)


def test_difficulties_are_those_before_the_step():
    sampler = Retiring(CDAS("abc", 1))
    sampler.tell("a", [4], [4])
    found = belief_metrics(sampler, ["a", "b"], [3, 1], [4, 4])
    assert found["pass_rate_by_difficulty"] == [[-0.5, 0.75], [0.0, 0.25]]


def test_a_sampler_that_expects_nothing_has_no_pairs():
    assert belief_metrics(Prioritized("ab", 1), ["a"], [1], [4]) == {"pass_rate_by_expected": []}
