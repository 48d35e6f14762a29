"""The figures of a step, its ledger, and the score of what was believed."""

import json
from collections import Counter

import numpy as np
import pytest
from rolled import rolled

import rollwise as rw
from rollwise.records.metrics import metrics_line
from rollwise.records.states import load_state, save_state
from rollwise.simulate.engine import Lengths, SimulatedEngine, simulate
from rollwise.step import (
    LostDraw,
    Response,
    RolloutCost,
    Rollouts,
    StepRecipe,
    make_group,
    take_step,
)
from rollwise.step.metrics import PLACES, belief_metrics, brier_skill, rollout_metrics, visit_rows

LEDGER = dict.fromkeys(PLACES, 0)

# Rounds of 2, at most 3 of them; one correct and one incorrect response end a prompt.
POOLS = {"mixed at once": [1, 0], "late": [0, 0, 0, 1], "never": [1, 1, 1, 1, 1, 1]}


def make_step(pools=POOLS, lost=()):
    """A batch that ended with these pools, and its groups; all draws of the prompts `lost` are.

    The i-th response has i + 1 tokens of log-probability −i each; the third and later are cut.
    """
    session = rw.RolloutSession(pools, rw.Balanced(1, 1), rw.Rounds(size=2, rounds=3))
    while draws := session.next_draws():
        for draw in draws:
            i = draw.index
            if draw.key in lost:
                session.record_failure(draw)
                continue
            tokens, logprobs = [9] * (i + 1), np.full(i + 1, -i, np.float32)
            session.record(draw, pools[draw.key][i], Response(tokens, logprobs, "", i >= 2))
    recipe = StepRecipe(group_size=2)
    groups = [make_group(recipe, pool) for pool in session.pools.values()]
    tokens = sum(len(r.tokens) for pool in session.pools.values() for r in pool.responses)
    return Rollouts(session, cost=RolloutCost(tokens=tokens)), groups


def test_every_figure_by_hand():
    metrics = rollout_metrics(*make_step(), size=2)
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


def test_episodes_are_counted_by_their_ends():
    session = rw.RolloutSession(["a"], rw.FixedCount(3), rw.Rounds(size=3, rounds=1))
    for draw in session.next_draws():
        logprobs, cut = np.full(2, -0.5, np.float32), draw.index == 1
        response = Response([1, 2], logprobs, truncated=cut, turns=2, broken_off=7)
        session.record(draw, 1.0, response)
    [pool] = session.pools.values()
    groups = [make_group(StepRecipe(), pool)]
    metrics = rollout_metrics(Rollouts(session), groups, size=2)
    assert metrics["ends"] == {"done": 2, "truncated": 1, "failed": 0}
    assert metrics["turns"] == 2
    assert metrics["entropy"] == 0.5  # per learned token; seven others were broken off


def test_the_reward_is_that_of_draws_which_every_prompt_has_whatever_they_show():
    """The hard prompt draws twice, the easy one once: only their first draws compare."""
    session = rw.RolloutSession(["easy", "hard"], rw.PositiveFocused(1), rw.Streamed(4))
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, float(draw.key == "easy" or draw.index), Response((1, 2, 3)))
    groups = [make_group(StepRecipe(), pool) for pool in session.pools.values()]
    assert [len(pool) for pool in session.pools.values()] == [1, 2]
    assert rollout_metrics(Rollouts(session), groups, size=4)["reward"] == 0.5


def test_with_a_pilot_the_reward_is_of_all_prompts_and_not_of_those_that_get_a_share():
    sampler = rw.Uniform(["never", "always", "half"], 3)
    correct = {"never": lambda i: 0, "always": lambda i: 1, "half": lambda i: i % 2}
    recipe = StepRecipe(
        allocation=rw.GVM(pilot=2, mean_draws=4), strategy="all", objective="linear"
    )
    step = take_step(recipe, sampler, rolled(lambda draw: correct[draw.key](draw.index)), 1)
    assert "never" not in step.rollouts.session.pools
    assert step.metrics["reward"] == 0.5
    assert step.metrics["zero_variance_first"] == pytest.approx(2 / 3)
    assert step.metrics["ledger"]["draws"]["pilot"] == 6
    assert step.metrics["draws_per_prompt"] == step.metrics["draws"] / 3
    assert {(row["key"], row["drawn"]) for row in step.visits} >= {("never", 2)}
    assert len(step.visits) == 3


def test_draws_that_a_pilot_lost_are_counted():
    def roll_out(session):
        while draws := session.next_draws():
            for draw in draws:
                if draw.key == "lost":
                    session.record_failure(draw, final=True)
                else:
                    session.record(draw, draw.index % 2, Response((1, 2, 3)))
        return RolloutCost()

    recipe = StepRecipe(
        allocation=rw.GVM(pilot=2, mean_draws=4), strategy="all", objective="linear"
    )
    metrics = take_step(recipe, rw.Uniform(["lost", "half"], 2), roll_out, 1).metrics
    assert metrics["lost_draws"] == metrics["ledger"]["draws"]["failed"] == 2


def test_draws_lost_for_good_leave_figures_that_are_numbers():
    """A prompt of which nothing arrived, six draws tried three times, counts as without signal."""
    metrics = rollout_metrics(*make_step({"gone": [], "there": [0, 1]}, lost=["gone"]), size=2)
    assert (metrics["failed_draws"], metrics["lost_draws"], metrics["draws"]) == (18, 6, 2)
    assert metrics["reward"] == metrics["zero_variance_first"] == 0.5
    json.dumps(metrics, allow_nan=False)


def test_beliefs_stand_beside_what_came_of_them():
    """Eighteen prompts, expected in another order than they come in; parts of two or three."""
    keys = list(range(18))
    sampler = rw.Uniform(keys, 1, decay=1.0)
    rates = [(7 * key) % 18 / 18 for key in keys]
    sampler.tell(keys, [round(1800 * rate) for rate in rates], [1800] * 18)
    drawn = [0, *[10] * 17]
    correct = [round(10 * rate) if n else 0 for rate, n in zip(rates, drawn, strict=True)]
    pairs = belief_metrics(sampler, keys, correct, drawn)["pass_rate_by_expected"]
    assert len(pairs) == 8 and pairs == sorted(pairs)
    # The smallest three that were drawn: 1/18, 2/18 and 3/18, with 1, 1 and 2 of 10 correct.
    assert pairs[0] == pytest.approx([(1 + 2 + 3) / 3 / 18, (1 + 1 + 2) / 30], abs=0.01)


PASS_RATES = {key: (key + 0.5) / 24 for key in range(24)}
RECIPES = {
    "rounds": {"schedule": rw.Rounds(4, 4)},
    "streamed": {"schedule": rw.Streamed(16, speculation=0.5)},
    "kept": {"schedule": rw.Rounds(4, 1), "zero_variance": "keep"},
    "refilled": {"schedule": rw.Rounds(4, 1), "zero_variance": "refill"},
    "all members": {"schedule": rw.Rounds(4, 4), "strategy": "all"},
    "pilot": {"exit_rule": None, "schedule": None, "allocation": rw.GVM(pilot=2)},
}


class Counting(SimulatedEngine):
    """Counts the tokens of every response by its draw, finished or cancelled."""

    all_tokens = 0

    async def complete(self, draw, prompt):
        try:
            response = await super().complete(draw, prompt)
        except LostDraw as lost:
            self.all_tokens += lost.tokens
            raise
        self.all_tokens += len(response.tokens)
        return response


def steps(count=3, **changed):
    recipe = StepRecipe(**{"exit_rule": rw.Balanced(2, 2), "group_size": 4} | changed)
    sampler = rw.Uniform(list(PASS_RATES), 12)
    engine = Counting(PASS_RATES, Lengths(20, 0.8, 60), 8, 1.0)
    for number in range(1, count + 1):
        before = engine.all_tokens
        step = take_step(recipe, sampler, lambda session: simulate(session, engine), number)
        yield step, engine.all_tokens - before


@pytest.mark.parametrize("kind", RECIPES)
def test_the_ledger_adds_up_to_every_draw_and_every_token(kind):
    everything = Counter()
    for step, tokens in steps(**RECIPES[kind]):
        ledger, metrics = step.metrics["ledger"], step.metrics
        everything.update(ledger["draws"])
        assert list(ledger["draws"]) == list(ledger["tokens"]) == list(PLACES)
        assert sum(ledger["draws"].values()) == metrics["draws"] + metrics["failed_draws"]
        assert sum(ledger["tokens"].values()) == metrics["tokens"] == tokens
        trained = step.examples({key: [0] for key in PASS_RATES})
        taught = [example for example in trained if kind != "kept" or example.advantage]
        assert ledger["draws"]["trained"] == len(taught)
        assert ledger["tokens"]["trained"] == sum(each.response.drawn for each in taught)
        cut = [r for g in step.groups for r in g.pool.responses if r.truncated]
        assert ledger["truncated"] == {"draws": len(cut), "tokens": 60 * len(cut)}
        if kind != "streamed":  # then surplus tokens, the rest, are none: nothing is cancelled
            assert ledger["draws"]["surplus"] == ledger["tokens"]["surplus"] == 0
    if kind == "streamed":
        assert all(everything[place] for place in ("surplus", "spare", "zero_variance"))


def test_each_prompt_has_a_row_with_what_was_believed_before_the_step():
    sampler = rw.Uniform(["a", "b"], 2, decay=1.0)
    sampler.tell(["a", "b"], [3, 0], [4, 0])
    pools = [rw.Pool("a", [1, 0, 0]), rw.Pool("b", [])]
    pools[0].exit_reason = "satisfied"
    believed = sampler.expected_pass_rates(["a"])[0]
    first, second = visit_rows(sampler, pools, trained=[2, 0])
    assert first == {
        "key": "a",
        "correct": 1,
        "drawn": 3,
        "reward": pytest.approx(1 / 3),
        "expected": pytest.approx(believed, abs=1e-4),
        "strength": pytest.approx(sum(sampler.pass_rate_priors(["a"])[0]), abs=0.01),
        "trained": 2,
        "exit_reason": "satisfied",
    }
    assert (second["drawn"], second["reward"]) == (0, None)


def test_a_sampler_that_expects_nothing_has_neither_pairs_nor_beliefs():
    sampler = rw.Prioritized("ab", 1)
    assert belief_metrics(sampler, ["a"], [1], [4]) == {"pass_rate_by_expected": []}
    (row,) = visit_rows(sampler, [rw.Pool("a", [1])], trained=[0])
    assert row["expected"] is row["strength"] is None


@pytest.mark.parametrize(
    ("expected", "correct", "score"),
    [
        # The mean is 0.5, so B₀ = 0.25; B = (1·0.75² + 3·0.25² + 3·0.5² + 1·0.5²)/8 = 1.75/8.
        ([0.25, 0.5], [1, 3], 1 - 1.75 / 8 / 0.25),
        ([0.5, 0.5], [1, 3], 0),  # no better than the mean
        ([0, 1], [0, 4], 1),  # certain and right
        ([1, 0], [0, 4], -3),
        ([np.nan, np.nan], [1, 2], np.nan),  # nothing can be scored
        ([0.5, 0.5], [0, 0], np.nan),
        ([0.5, 0.5], [4, 4], np.nan),
    ],
)
def test_the_score_of_two_prompts_with_four_responses_by_hand(expected, correct, score):
    assert brier_skill(expected, correct, [4, 4]) == pytest.approx(score, nan_ok=True)


class Seen(rw.Uniform):
    """Counts draws, and so keeps and reports numbers of NumPy's."""

    kept = (*rw.Uniform.kept, "seen")
    seen = 0

    def learn(self, indices, correct, drawn):
        self.seen += drawn.sum()

    def metrics(self):
        return {"seen": np.int64(self.seen)}


def test_numbers_of_numpy_can_be_kept_and_reported(tmp_path):
    sampler, again = Seen(["a", "b"], 2), Seen(["a", "b"], 2)
    step = take_step(StepRecipe(), sampler, rolled(lambda draw: draw.index % 2), 1)
    assert metrics_line(step.metrics)
    save_state(tmp_path / "state", sampler)
    load_state(tmp_path / "state", again)
    assert again.seen == sampler.seen > 0
