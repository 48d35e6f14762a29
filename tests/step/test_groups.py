"""Episodes, and from a pool to what the learner and the records get."""

from dataclasses import dataclass

import numpy as np
import pytest

from rollwise.sampling import Draw, Objective, Pool
from rollwise.step import Response, StepRecipe, make_group
from rollwise.step.groups import normalize_advantages, normalize_gradients
from rollwise.step.metrics import group_ledger

PROMPTS = {"q": [5, 6, 7]}


@dataclass(frozen=True)
class Deviation(Objective):
    """As one would write it."""

    def advantages(self, pool, group):
        return group.rewards - group.rewards.mean()


def make_pool(rewards, key="q"):
    """A pool whose i-th response is the tokens [i, i + 1], of log-probability −i each."""
    responses = [
        Response(
            tokens=[i, i + 1],
            logprobs=np.full(2, -i, dtype=np.float32),
            text=f"response {i}",
            truncated=i == 3,
            draw=Draw(key, i, seed=100 + i),
        )
        for i in range(len(rewards))
    ]
    pool = Pool(key, rewards, responses)
    pool.exit_reason = "satisfied"
    return pool


def group_of(rewards, **recipe):
    return make_group(StepRecipe(**recipe), make_pool(rewards))


@pytest.mark.parametrize("rewards", [[0] * 8, [1] * 8, [0.5] * 8, []])
def test_a_pool_without_signal_is_dropped_or_kept_at_zero(rewards):
    dropped = group_of(rewards)
    assert dropped.dropped
    assert list(dropped.examples(PROMPTS)) == []
    kept = group_of(rewards, zero_variance="keep")
    assert not kept.dropped
    assert [example.advantage for example in kept.examples(PROMPTS)] == [0] * min(4, len(rewards))


def test_examples_are_the_members_in_draw_order():
    examples = list(group_of([0, 0, 0, 0, 0, 1, 0, 1]).examples(PROMPTS))
    assert [example.response.tokens for example in examples] == [[0, 1], [1, 2], [5, 6], [7, 8]]
    assert [example.advantage for example in examples] == [-0.25, -0.25, 0.75, 0.75]
    assert [example.response.logprobs[1] for example in examples] == [0, -1, -5, -7]
    assert all(example.prompt == [5, 6, 7] for example in examples)


@pytest.mark.parametrize("rewards", [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]])
def test_records_tell_of_every_response_drawn(rewards):
    group = group_of(rewards)
    rows = list(group.records(7, "1+1?", "2"))
    assert [row["index"] for row in rows] == list(range(6))
    assert [row["reward"] for row in rows] == rewards
    advantages = dict(zip(group.members.indices, group.advantages, strict=True))
    assert [row["advantage"] for row in rows] == [advantages.get(i) for i in range(6)]
    assert sum(row["advantage"] is None for row in rows) == 2
    assert rows[3] == {
        "step": 7,
        "key": "q",
        "question": "1+1?",
        "answer": "2",
        "index": 3,
        "response": "response 3",
        "reward": 0.0,
        "acc": 0.0,
        "advantage": advantages.get(3),
        "tokens": 2,
        "truncated": True,
        "turns": 1,
        "end": "truncated",
        "exit_reason": "satisfied",
    }


GRPO = {"objective": "grpo", "strategy": "all"}
RAW = {"objective": "reward", "strategy": "all", "zero_variance": "keep"}


@pytest.mark.parametrize(
    ("rewards", "recipe", "by", "expected"),
    [
        # 0.75 and three of −0.25, −0.5 and 0.5: mean 0, variance (0.75 + 0.5)/6.
        (
            [[1, 0, 0, 0], [1, 1, 1, 1], [0, 1]],
            GRPO,
            "standardize",
            [np.array(x) / np.sqrt(1.25 / 6) for x in ([0.75] + [-0.25] * 3, [0] * 4, [-0.5, 0.5])],
        ),
        # Of mean ½ and standard deviation ½.
        ([[0], [1]], RAW, "standardize", [[-1], [1]]),
        # Of mean ⅓: FlashREINFORCE's advantages.
        ([[1], [0], [0]], RAW, "center", [[2 / 3], [-1 / 3], [-1 / 3]]),
        ([[1], [0], [0]], RAW, "none", [[1], [0], [0]]),
        ([], RAW, "standardize", []),
        ([[1, 1]], GRPO, "standardize", [[0, 0]]),
    ],
)
def test_advantages_are_normalized_over_the_groups_that_are_trained_on(
    rewards, recipe, by, expected
):
    groups = [group_of(each, **recipe) for each in rewards]
    found = normalize_advantages(groups, by)
    assert len(found) == len(expected)
    for before, after, wanted in zip(groups, found, expected, strict=True):
        assert after.advantages == pytest.approx(wanted, rel=1e-3)
        assert after is before or not (before.dropped or by == "none")


@pytest.mark.parametrize("by", ["none", "center", "standardize"])
@pytest.mark.parametrize("objective", ["reference", "grpo", "reward", Deviation()])
@pytest.mark.parametrize(("rewards", "differ"), [([0.3] * 10, 0), ([0.1, 0.2, 0.3], 2)])
def test_rounding_teaches_nothing(rewards, differ, objective, by):
    """The mean of ten rewards of 0.3 is 0.3 − 6e-17; that of 0.1, 0.2 and 0.3 is not quite 0.2."""
    recipe = {"group_size": 10, "strategy": "all", "zero_variance": "keep", "objective": objective}
    [group] = normalize_advantages([group_of(rewards, **recipe)], by)
    compared = objective != "reward" or by != "none"
    assert group.trained == (differ if compared else len(rewards))


def test_a_certain_response_sets_no_scale():
    """Its tokens' log-probabilities are 0 or −1e-7, depending on the processor."""
    norms = []
    for certain in (0.0, -1e-7):
        responses = [said(5, 6, logprob=logprob) for logprob in (certain, -0.7, -0.1)]
        pool = Pool("q", [1.0, 0.0, 0.0], responses)
        group = make_group(StepRecipe(group_size=3, strategy="all"), pool)
        norms.append(normalize_gradients([group], "tokens")[0].advantages)
    np.testing.assert_allclose(*norms, rtol=1e-4)


def said(*tokens, logprob=-1.0, **others):
    return Response(tokens, np.full(len(tokens), logprob, np.float32), **others)


def two_turns(**changed):
    """The model says 5 6, the environment 7 8 9, the model 4."""
    mask, logprobs = np.array([1, 1, 0, 0, 0, 1], bool), np.array([-1, -1, 0, 0, 0, -3], np.float32)
    return Response([5, 6, 7, 8, 9, 4], logprobs, mask=mask, turns=2, **changed)


def test_only_what_the_model_drew_is_counted():
    episode = two_turns()
    assert episode.drawn == 3 and episode.drawn_logprobs.tolist() == [-1, -1, -3]
    unknown = Response(episode.tokens, mask=episode.mask)
    assert np.isnan(unknown.drawn_logprobs).tolist() == [True] * 3
    assert np.isnan(unknown.figures.surprisal) and unknown.figures.learned == 3
    ends = [two_turns(**{name: True}).end for name in ("failed", "truncated")]
    assert [episode.end, *ends] == ["done", "failed", "truncated"]


def test_an_episode_of_several_rows_is_one_draw():
    """5 6 | 7 8 9 | 4 after the prompt, then 2 after 8 8, then nothing of the model's after 8 9.

    Its price, with a turn that was broken off, counts, and not its 4 tokens.
    """
    nothing = Response([3], [0.0], mask=np.array([False]))
    branches = [((8, 8), said(2, logprob=-2.0)), ((8, 9), nothing)]
    whole = two_turns(branches=branches, broken_off=1)
    group = make_group(StepRecipe(group_size=2), Pool("q", [1.0, 0.0], [whole, said(2, 3)]))
    rows = first, second, _ = list(group.examples({"q": [9, 9]}))
    assert [list(e.prompt) for e in rows] == [[9, 9], [8, 8], [9, 9]]
    assert [list(e.response.tokens) for e in rows] == [[5, 6, 7, 8, 9, 4], [2], [2, 3]]
    assert [e.advantage for e in rows] == [0.5, 0.5, -0.5]
    assert first.response is whole and len(first) == 2 + 6
    assert second.response.drawn_logprobs.tolist() == [-2]
    ledger = group_ledger(group)
    assert ledger["draws"] == {"trained": 2} and ledger["tokens"] == {"trained": 5 + 2}
    figures = whole.figures
    assert (figures.tokens, figures.turns, figures.surprisal) == (5, 2, 1 + 1 + 3 + 2)
