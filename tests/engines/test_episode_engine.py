"""Episodes by an engine and an environment: turns, ends, prices, and what is cancelled."""

from types import SimpleNamespace

import numpy as np
import pytest
from episode_fakes import (
    DRAW,
    PROBLEMS,
    Beginning,
    Playing,
    Talking,
    encode_prompt,
    play,
    playing_by,
    says,
)
from tiny_models import LIMIT, PROMPTS, make_model, make_tokenizer

from rollwise.engines import EpisodeEngine, EpisodeLimits, LostDraw
from rollwise.engines.testing import EngineContract
from rollwise.engines.transformers import TransformersEngine
from rollwise.environments import EpisodeLost, Turn
from rollwise.errors import PluginError
from rollwise.grading import Grader
from rollwise.sampling import Draw, FixedCount, RolloutSession, Rounds
from rollwise.step import Episode
from rollwise.step.session import grade_with, run_session


def test_turns_go_on_from_the_whole_context():
    engine = Talking()
    outcome = play(says(Turn("xy"), Turn("z"), Turn(done=True, reward=0.5)), engine)
    assert engine.contexts == [[7, 7], [7, 7, 1, 1, 50, 50], [7, 7, 1, 1, 50, 50, 2, 1, 50]]
    assert outcome.tokens == [1, 1, 50, 50, 2, 1, 50, 3, 1]
    assert outcome.loss_mask.tolist() == [1, 1, 0, 0, 1, 1, 0, 1, 1]
    assert outcome.logprobs.tolist() == [-1, -0.5, 0, 0, -2, -0.5, 0, -3, -0.5]
    assert (outcome.draw, outcome.end, outcome.reward) == (DRAW, "done", 0.5)
    assert (outcome.usage.tokens, outcome.usage.turns) == (6, 3)
    assert outcome.text == "said 3"
    assert outcome.transcript == "said 1\nxy\nsaid 2\nz\nsaid 3"


def test_an_episode_that_begins_anew_is_one_draw_of_two_rows():
    engine = Talking()
    anew = [{"role": "user", "content": "so far: x"}]
    turns = says(Turn("xy"), Turn(anew=anew, reward=0.25), Turn("z"), Turn(done=True, reward=1.0))
    outcome = play(turns, engine)
    summary = [60] * 9
    assert engine.contexts[2:] == [summary, [*summary, 3, 1, 50]]
    assert outcome.tokens == [1, 1, 50, 50, 2, 1]
    first, second = outcome.examples([7, 7], 0.5)
    assert (first.prompt, second.prompt) == ([7, 7], summary)
    assert second.response == [3, 1, 50, 4, 1]
    assert second.loss_mask.tolist() == [True, True, False, True, True]
    assert (outcome.reward, outcome.usage.tokens, outcome.usage.turns) == (1.0, 8, 4)
    assert outcome.transcript == "said 1\nxy\nsaid 2\nso far: x\nsaid 3\nz\nsaid 4"


def test_limits_count_all_rows_of_an_episode():
    """2 + 2 + 2 tokens of the model; the context holds 9 + 1 at most, the episode less than 6."""
    anew = Turn(anew=[{"role": "user", "content": "123456789"}], reward=0.5)
    turns = says(*[anew] * 9)
    outcome = play(turns, limits=EpisodeLimits(tokens=6))
    assert (outcome.end, outcome.usage.turns, len(outcome.branches)) == ("truncated", 3, 2)
    outcome = play(turns, limits=EpisodeLimits(context=9))
    assert (outcome.end, outcome.usage.turns, len(outcome.branches)) == ("truncated", 1, 0)


def test_the_first_turn_has_the_draws_seed_and_each_later_one_its_own():
    seen = []

    class Noting(Talking):
        def submit(self, draws, prompts):
            seen.extend(draws)
            super().submit(draws, prompts)

    for _ in range(2):
        play(says(Turn("x"), Turn("x"), Turn(done=True)), Noting())
    assert seen[0] == DRAW
    assert len({draw.seed for draw in seen[:3]}) == 3
    assert seen[3:] == seen[:3]


@pytest.mark.parametrize(
    "answers, options, expected",
    [
        ([Turn("x", reward=0.25)] * 9, {"turns": 2}, ("truncated", 0.25, 2)),
        ([Turn("x")] * 9, {"turns": 2}, ("truncated", 0.0, 2)),
        ([Turn("xxx")] * 9, {"tokens": 6}, ("truncated", 0.0, 2)),  # 2 + 3 + 2 + 3 > 6
        ([Turn("x")] * 9, {"context": 10, "turn_tokens": 3}, ("truncated", 0.0, 2)),  # 2+3+3+3
        ([Turn("x"), Turn(done=True)], {"turns": 2}, ("done", None, 2)),
        ([Turn("x"), Turn(done=True, reward=float("nan"))], {}, ("failed", 0.0, 2)),
        ([Turn("x"), Turn("x")], None, ("truncated", 0.0, 2)),
        ([Turn("x"), Turn(done=True, reward=1.0)], None, ("truncated", 1.0, 2)),
    ],
)
def test_ends(answers, options, expected):
    """Without options, the second turn of the model is cut."""
    engine = Talking(truncated=[2] if options is None else [])
    outcome = play(says(*answers), engine, limits=EpisodeLimits(**options or {}))
    assert (outcome.end, outcome.reward, outcome.usage.turns) == expected
    assert outcome.loss_mask[-1], "what is never read is no part of an episode"


@pytest.mark.parametrize(
    "answer, wanted",
    [
        (None, r"a rollwise\.environments\.Turn, got NoneType"),
        (Turn(done="no"), "a Turn whose `done` is True or False"),
        (Turn(done=True, reward="1.0"), "a Turn whose reward is a number, or None, got .*'1.0'"),
        (Turn(5), "a Turn whose `says` is a text, or messages"),
        (Turn([{"role": "tool", "content": None}]), "a Turn whose `says` is a text, or messages"),
        (Turn(anew="again"), "a Turn whose `anew` is messages"),
    ],
)
def test_an_environment_that_returns_no_turn_ends_the_run(answer, wanted):
    with pytest.raises(PluginError, match=rf"`step`.* must return {wanted}"):
        play(says(answer))


def raising(error):
    def step(turn, reply):
        raise error

    return Playing(step)


def test_a_lost_episode_is_played_again():
    lost = LostDraw(DRAW, "EpisodeLost: no server", tokens=2)
    assert play(raising(EpisodeLost("no server"))) == lost


def test_an_environment_that_raises_has_failed_and_is_said_once(caplog):
    class Failing:
        def step(self, reply):
            return {}["missing"]

    engine = playing_by(Beginning(lambda opening: Failing()))
    engine.submit([Draw("a", index, seed=index) for index in range(3)], {"a": [7, 7]})
    assert [(each.end, each.reward) for each in engine.wait()] == [("failed", 0.0)] * 3
    [record] = caplog.records
    assert "an episode failed: KeyError: 'missing'" in record.getMessage()


def test_an_environment_that_cannot_be_closed_is_named_and_ends_nothing_else(caplog):
    def step(reply):
        return Turn(done=True, reward=1.0)

    outcome = play(Beginning(lambda opening: SimpleNamespace(step=step, close=lambda: 1 / 0)))
    assert (outcome.end, outcome.reward) == ("done", 1.0)
    assert "an episode of 'a' could not be closed: ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "begun, wanted",
    [
        (None, "an object with `step`, got None"),
        (SimpleNamespace, "an object with `step`, got type"),
        (SimpleNamespace(step=lambda reply: Turn("x")), "a new object for each episode"),
    ],
)
def test_an_environment_must_begin_an_object_with_a_step_for_each_episode(begun, wanted):
    engine = playing_by(Beginning(lambda opening: begun))
    engine.submit([Draw("a", index, seed=index) for index in range(2)], {"a": [7]})
    with pytest.raises(PluginError, match=f"Beginning: `begin` .* {wanted}"):
        engine.wait()


def test_a_turn_that_the_engine_loses_loses_the_episode():
    class Losing(Talking):
        def result(self, draw, n):
            return LostDraw(draw, "gone", tokens=1) if n == 2 else super().result(draw, n)

    lost = LostDraw(DRAW, "gone", tokens=2 + 1)
    assert play(says(Turn("x"), Turn("x")), Losing()) == lost


def test_wrong_results_of_an_engine_of_turns_are_named():
    class Mistaken(Talking):
        def cancel(self, draws):
            return None

    playing = playing_by(says(Turn("x")), Mistaken(), limits=EpisodeLimits(turn_tokens=1))
    playing.submit([DRAW], {"a": [7]})
    with pytest.raises(PluginError, match=r"Mistaken: `cancel` .* number of tokens .* NoneType"):
        playing.cancel([DRAW])
    playing.submit([DRAW], {"a": [7]})
    with pytest.raises(PluginError, match=r"Mistaken: `wait` .* within 1 tokens .*, not 2"):
        playing.wait()


class OfAnswers(Grader):
    def grade(self, responses, answers):
        self.graded = list(zip(responses, answers, strict=True))
        return np.ones(len(responses))


def test_a_session_of_episodes_that_are_graded_by_either():
    """The environment rewards a's by 0.25, and loses an attempt; the grader gives 1 to b's."""
    by_key = {"a": Turn(done=True, reward=0.25), "b": Turn(done=True)}
    attempts = iter([EpisodeLost("no server")])

    def begin(opening):
        key, turns = opening.messages[0]["content"], iter([Turn("x")])

        def step(reply):
            if turn := next(turns, None):
                return turn
            for error in attempts:
                raise error
            return by_key[key]

        return SimpleNamespace(step=step)

    session = RolloutSession(["a", "b"], FixedCount(2), Rounds(2, rounds=1), seed=0)
    grader = OfAnswers()
    answers = {key: problem.answer for key, problem in PROBLEMS.items()}
    engine = playing_by(Beginning(begin))
    cost = run_session(session, engine, {"a": [7], "b": [8]}, grade_with(grader, answers))
    assert session.pools["a"].rewards.tolist() == [0.25, 0.25]
    assert session.pools["b"].rewards.tolist() == [1.0, 1.0]
    assert {answer for _, answer in grader.graded} == {"of b"}
    assert session.failures == 1
    assert (cost.tokens, cost.failed_tokens) == (5 * 2 * 2, 2 * 2)


def begin_three_turns(opening):
    """Says 12 twice, then ends."""
    answers = iter([Turn("12"), Turn("12"), Turn(done=True)])
    return SimpleNamespace(step=lambda reply: next(answers))


class TestEpisodesByTheBuiltInEngine(EngineContract):
    prompts = PROMPTS

    def make(self):
        tokenizer = make_tokenizer()
        engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=5)
        return EpisodeEngine(
            engine,
            Beginning(begin_three_turns),
            {key: PROBLEMS["a"] for key in PROMPTS},
            lambda says: tokenizer.encode(says, add_special_tokens=False),
            encode_prompt,
            EpisodeLimits(context=engine.context, turn_tokens=LIMIT),
        )

    def weights(self):
        return make_model(seed=1).state_dict()

    def test_episodes_have_several_turns(self):
        with self.engine() as engine:
            done = self.complete(engine, self.draws(6)).values()
        assert max(outcome.usage.turns for outcome in done) == 3
        assert all(isinstance(outcome, Episode) for outcome in done)
