"""Episodes by an engine and an environment: turns, ends, prices, and what is cancelled."""

import asyncio
from types import SimpleNamespace

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
from tiny_models import LIMIT, PROMPTS, complete, make_model, make_tokenizer

from rollwise import loops
from rollwise.engines import EpisodeEngine, EpisodeLimits, LostDraw
from rollwise.engines.testing import EngineContract
from rollwise.engines.transformers import TransformersEngine
from rollwise.environments import Turn
from rollwise.errors import PluginError
from rollwise.grading import Grader
from rollwise.sampling import Draw, FixedCount, RolloutSession, Rounds
from rollwise.step.session import grade_with, run_session


def test_turns_continue_from_the_whole_context():
    engine = Talking()
    outcome = play(says(Turn("xy"), Turn("z"), Turn(done=True, reward=0.5)), engine)
    assert engine.contexts == [[7, 7], [7, 7, 1, 1, 50, 50], [7, 7, 1, 1, 50, 50, 2, 1, 50]]
    assert outcome.tokens == [1, 1, 50, 50, 2, 1, 50, 3, 1]
    assert outcome.mask.tolist() == [1, 1, 0, 0, 1, 1, 0, 1, 1]
    assert outcome.logprobs.tolist() == [-1, -0.5, 0, 0, -2, -0.5, 0, -3, -0.5]
    assert (outcome.end, outcome.reward) == ("done", 0.5)
    assert (outcome.figures.tokens, outcome.turns) == (6, 3)
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
    assert second.response.tokens == [3, 1, 50, 4, 1]
    assert second.response.mask.tolist() == [True, True, False, True, True]
    assert (outcome.reward, outcome.figures.tokens, outcome.turns) == (1.0, 8, 4)
    assert outcome.transcript == "said 1\nxy\nsaid 2\nso far: x\nsaid 3\nz\nsaid 4"


@pytest.mark.parametrize(("limits", "turns"), [({"tokens": 6}, 3), ({"context": 9}, 1)])
def test_limits_count_all_rows_of_an_episode(limits, turns):
    """2 + 2 + 2 tokens of the model; the context holds 9 + 1 at most, the episode less than 6."""
    anew = Turn(anew=[{"role": "user", "content": "123456789"}], reward=0.5)
    outcome = play(says(*[anew] * 9), limits=EpisodeLimits(**limits))
    assert (outcome.end, outcome.turns, len(outcome.branches)) == ("truncated", turns, turns - 1)


def test_the_first_turn_has_the_draws_seed_and_each_later_one_its_own():
    first, again = Talking(), Talking()
    for engine in (first, again):
        play(says(Turn("x"), Turn("x"), Turn(done=True)), engine)
    assert first.draws[0] == DRAW
    assert len({draw.seed for draw in first.draws}) == 3
    assert first.draws == again.draws


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
    assert (outcome.end, outcome.reward, outcome.turns) == expected
    assert outcome.mask[-1], "what is never read is no part of an episode"


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


def test_an_environment_at_fault_loses_the_draw():
    with pytest.raises(LostDraw, match="no server") as lost:
        play(raising(LostDraw("no server")))
    assert (lost.value.tokens, lost.value.final) == (2, False)


def complete_three(playing):
    async def play_all():
        draws = [Draw("a", index, seed=index) for index in range(3)]
        return await asyncio.gather(*(playing.complete(draw, [7, 7]) for draw in draws))

    return loops.run(play_all())


def test_an_environment_that_raises_has_failed_and_is_named_once(caplog):
    class Failing:
        def step(self, reply):
            return {}["missing"]

    outcomes = complete_three(playing_by(Beginning(lambda opening: Failing())))
    assert [(each.end, each.reward) for each in outcomes] == [("failed", 0.0)] * 3
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
    with pytest.raises(PluginError, match=f"Beginning: `begin` .* {wanted}"):
        complete_three(engine)


def test_a_turn_that_the_engine_loses_loses_the_episode():
    class Losing(Talking):
        async def complete(self, draw, prompt):
            if self.draws:
                raise LostDraw("gone", tokens=1)
            return await super().complete(draw, prompt)

    with pytest.raises(LostDraw, match="gone") as lost:
        play(says(Turn("x"), Turn("x")), Losing())
    assert lost.value.tokens == 2 + 1


def test_a_turn_beyond_its_limit_is_the_engines_fault():
    with pytest.raises(PluginError, match=r"Talking: `complete` .* within 1 tokens .*, not 2"):
        play(says(Turn("x")), limits=EpisodeLimits(turn_tokens=1))


def test_answers_that_wait_do_so_beside_each_other():
    async def step(turn, reply):
        if turn == 2:
            return Turn(done=True, reward=1.0)
        meeting.append(reply)
        while len(meeting) < 3:
            await asyncio.sleep(0)
        return Turn("x")

    meeting = []
    outcomes = complete_three(playing_by(Playing(step), Talking(slots=3)))
    assert [outcome.end for outcome in outcomes] == ["done"] * 3


def test_what_is_cancelled_has_cost_all_its_turns():
    """The first waits for its answer after 2 tokens, the second within its second turn."""
    never, closed = asyncio.Event(), []

    class Slow(Talking):
        async def complete(self, draw, prompt):
            if len(prompt) == 1:
                return await super().complete(draw, prompt)
            try:
                await never.wait()
            except asyncio.CancelledError:
                raise LostDraw("it was cancelled", 3) from None

    def begin(opening):
        async def waits():
            await never.wait()

        is_first = opening.messages[0]["content"] == "a"
        step = lambda reply: waits() if is_first else Turn("x")  # noqa: E731
        return SimpleNamespace(step=step, close=lambda: closed.append(is_first))

    async def cancel_all():
        playing = playing_by(Beginning(begin), Slow(slots=2))
        tasks = [asyncio.create_task(playing.complete(Draw(k, 0, 0), [7])) for k in "aba"]
        for _ in range(9):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, waiting = loops.run(cancel_all())
    assert (first.tokens, second.tokens) == (2, 2 + 3)
    assert isinstance(waiting, asyncio.CancelledError)
    assert sorted(closed) == [False, True]


class OfAnswers(Grader):
    def __init__(self):
        self.answers = []

    async def reward(self, response, answer):
        self.answers.append(answer)
        return 1.0


def test_a_session_of_episodes_that_are_graded_by_either():
    """The environment rewards a's by 0.25, and loses an attempt; the grader gives 1 to b's."""
    by_key = {"a": Turn(done=True, reward=0.25), "b": Turn(done=True)}
    attempts = iter([LostDraw("no server")])

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
    assert grader.answers == ["of b"] * 2
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
        with self.make() as engine:
            done = complete(engine, self.draws(6)).values()
        assert max(outcome.turns for outcome in done) == 3
