"""Episodes: spans of model and environment, what they cost, and what is learned from them."""

import numpy as np
import pytest

from rollwise.engines import Completion
from rollwise.sampling import Draw, Pool
from rollwise.step import Episode, Span, StepRecipe, Usage, make_group
from rollwise.step.figures import ResponseFigures
from rollwise.step.ledger import group_ledger


def said(*tokens, logprob=-1.0):
    return Span(tokens, np.full(len(tokens), logprob, np.float32))


def two_turns(**changed):
    """The model says 5 6, the environment 7 8 9, the model 4."""
    return Episode(
        **{"spans": (said(5, 6), Span((7, 8, 9)), said(4, logprob=-3.0)), "usage": Usage(4, 2, 1.5)}
        | changed
    )


def test_spans_are_joined_with_a_mask():
    episode = two_turns()
    assert episode.tokens == [5, 6, 7, 8, 9, 4]
    assert episode.loss_mask.tolist() == [True, True, False, False, False, True]
    assert episode.logprobs.tolist() == [-1, -1, 0, 0, 0, -3]
    assert not episode.truncated and two_turns(end="truncated").truncated


def test_log_probabilities_are_unknown_where_those_of_a_span_are():
    silent = Span((4,), np.zeros(0, np.float32))
    assert len(two_turns(spans=(said(5), Span((7,)), silent)).logprobs) == 0
    assert two_turns(spans=(said(5), Span((7,)), silent)).loss_mask.tolist() == [True, False, True]


@pytest.mark.parametrize("truncated, end", [(False, "done"), (True, "truncated")])
def test_a_single_response_is_the_episode_of_one_span(truncated, end):
    response = Completion(Draw("q", 0, 1), [3, 1], np.full(2, -0.5, np.float32), "", truncated)
    episode = Episode.of(response)
    assert (episode.tokens, episode.end, episode.reward) == ([3, 1], end, None)
    assert episode.loss_mask.all() and episode.logprobs.tolist() == [-0.5, -0.5]
    assert episode.usage == Usage(tokens=2, turns=1)
    assert Episode.of(episode) is episode


def test_the_price_of_an_episode_counts_and_not_its_tokens():
    """4 tokens drawn, one of them in a turn that was broken off; 3 of the environment's."""
    figures = ResponseFigures.of(two_turns())
    assert (figures.tokens, figures.turns) == (4, 2)
    assert figures.surprisal == 1 + 1 + 3


def test_an_episode_of_several_rows_is_one_draw():
    """5 6 | 7 8 9 | 4 after the prompt, then 2 after 8 8, then nothing of the model's after 8 9."""
    branches = [((8, 8), (said(2, logprob=-2.0),)), ((8, 9), (Span((3,)),))]
    whole = two_turns(branches=branches, usage=Usage(4, 3))
    pool = Pool("q", [1.0, 0.0], [whole, Episode(spans=(said(2, 3),), usage=Usage(2))])
    group = make_group(StepRecipe(group_size=2), pool, np.random.default_rng(0))
    first, second, single = group.examples({"q": [9, 9]})
    assert [list(e.prompt) for e in (first, second, single)] == [[9, 9], [8, 8], [9, 9]]
    assert [list(e.response) for e in (first, second)] == [[5, 6, 7, 8, 9, 4], [2]]
    assert [e.advantage for e in (first, second, single)] == [0.5, 0.5, -0.5]
    assert second.loss_mask is None and second.drawn_logprobs.tolist() == [-2]
    ledger = group_ledger(group)
    assert ledger["draws"] == {"trained": 2} and ledger["tokens"] == {"trained": 4 + 2}
    figures = ResponseFigures.of(whole)
    assert (figures.tokens, figures.turns, figures.surprisal) == (4, 3, 1 + 1 + 3 + 2)


def test_examples_tell_the_learner_which_tokens_are_the_models():
    pool = Pool("q", [1.0, 0.0], [two_turns(), Episode(spans=(said(2, 3),), usage=Usage(2))])
    group = make_group(StepRecipe(group_size=2), pool, np.random.default_rng(0))
    several, single = group.examples({"q": [9, 9]})
    assert several.loss_mask.tolist() == [True, True, False, False, False, True]
    assert several.drawn == 3 and several.drawn_logprobs.tolist() == [-1, -1, -3]
    assert len(several) == 2 + 6
    assert single.loss_mask is None and single.drawn == 2
    assert [several.advantage, single.advantage] == [0.5, -0.5]
