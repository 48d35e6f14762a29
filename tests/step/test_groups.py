"""Episodes, and from a pool to what the learner and the records get."""

import numpy as np
import pytest

from rollwise.engines import Completion
from rollwise.sampling import Draw, Pool
from rollwise.step import Episode, Span, StepRecipe, Usage, make_group
from rollwise.step.episodes import ResponseFigures
from rollwise.step.groups import normalize_advantages
from rollwise.step.metrics import group_ledger

PROMPTS = {"q": [5, 6, 7]}


def make_pool(rewards, key="q"):
    """A pool whose i-th response is the tokens [i, i + 1], of log-probability −i each."""
    completions = [
        Completion(
            Draw(key, i, seed=100 + i),
            tokens=[i, i + 1],
            logprobs=np.full(2, -i, dtype=np.float32),
            text=f"response {i}",
            truncated=i == 3,
        )
        for i in range(len(rewards))
    ]
    pool = Pool(key, rewards, completions)
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
    assert [example.response for example in examples] == [[0, 1], [1, 2], [5, 6], [7, 8]]
    assert [example.advantage for example in examples] == [-0.25, -0.25, 0.75, 0.75]
    assert [example.logprobs[1] for example in examples] == [0, -1, -5, -7]
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


def said(*tokens, logprob=-1.0):
    return Span(tokens, np.full(len(tokens), logprob, np.float32))


def two_turns(**changed):
    """The model says 5 6, the environment 7 8 9, the model 4."""
    return Episode(
        **{"spans": (said(5, 6), Span((7, 8, 9)), said(4, logprob=-3.0)), "usage": Usage(4, 2)}
        | changed
    )


def test_spans_are_joined_with_a_mask():
    episode = two_turns()
    assert episode.tokens == [5, 6, 7, 8, 9, 4]
    assert episode.loss_mask.tolist() == [True, True, False, False, False, True]
    assert episode.logprobs.tolist() == [-1, -1, 0, 0, 0, -3]
    assert not episode.truncated and two_turns(end="truncated").truncated
    unknown = two_turns(spans=(said(5), Span((7,)), Span((4,), np.zeros(0, np.float32))))
    assert len(unknown.logprobs) == 0
    assert unknown.loss_mask.tolist() == [True, False, True]


def test_an_episode_of_several_rows_is_one_draw():
    """5 6 | 7 8 9 | 4 after the prompt, then 2 after 8 8, then nothing of the model's after 8 9.

    Its price, with a turn that was broken off, counts, and not its 4 tokens.
    """
    branches = [((8, 8), (said(2, logprob=-2.0),)), ((8, 9), (Span((3,)),))]
    whole = two_turns(branches=branches, usage=Usage(5, 3))
    pool = Pool("q", [1.0, 0.0], [whole, Episode(spans=(said(2, 3),), usage=Usage(2))])
    group = make_group(StepRecipe(group_size=2), pool)
    rows = first, second, single = list(group.examples({"q": [9, 9]}))
    assert [list(e.prompt) for e in rows] == [[9, 9], [8, 8], [9, 9]]
    assert [list(e.response) for e in rows] == [[5, 6, 7, 8, 9, 4], [2], [2, 3]]
    assert [e.advantage for e in rows] == [0.5, 0.5, -0.5]
    assert first.loss_mask.tolist() == [True, True, False, False, False, True]
    assert first.drawn_logprobs.tolist() == [-1, -1, -3] and len(first) == 2 + 6
    assert second.loss_mask is None and second.drawn_logprobs.tolist() == [-2]
    assert (first.drawn, single.drawn) == (3, 2)
    ledger = group_ledger(group)
    assert ledger["draws"] == {"trained": 2} and ledger["tokens"] == {"trained": 5 + 2}
    figures = ResponseFigures.of(whole)
    assert (figures.tokens, figures.turns, figures.surprisal) == (5, 3, 1 + 1 + 3 + 2)
