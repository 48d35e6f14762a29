"""Episodes by an engine and an environment: turns, ends, prices, and what is cancelled."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import LIMIT, PROMPTS, make_model
from transformers import PreTrainedTokenizerFast

from rollwise.engines import Completion, Engine, EpisodeEngine, EpisodeLimits, LostDraw
from rollwise.engines.asynchronous import AsyncEngine
from rollwise.engines.testing import EngineContract
from rollwise.engines.transformers import TransformersEngine
from rollwise.environments import Calculator, EpisodeEnvironment, EpisodeLost, Opening, Turn
from rollwise.errors import PluginError
from rollwise.grading import Grader
from rollwise.models.loading import model_path
from rollwise.sampling import Balanced, Draw, FixedCount, RolloutSession, Rounds, Streamed
from rollwise.step import Episode
from rollwise.step.session import grade_with, run_session

PROBLEMS = {
    key: SimpleNamespace(messages=[{"role": "user", "content": str(key)}], answer=f"of {key}")
    for key in ("a", "b", *PROMPTS)
}
DRAW = Draw("a", 0, seed=11)


@dataclass(frozen=True)
class Playing(EpisodeEnvironment):
    """Plays by a function of the turn's number and what was said."""

    step: object

    def begin(self, opening):
        turns, step = iter(range(1, 100)), self.step
        played = SimpleNamespace(opening=opening, closed=False)
        played.step = lambda reply: step(next(turns), reply)
        return played


def says(*answers):
    return Playing(lambda turn, reply: answers[turn - 1])


class Talking(Engine):
    """An engine of `slots`, which draws the tokens [n, 1] in the n-th context that it is given."""

    def __init__(self, slots=None, truncated=(), portion=100):
        self.slots, self.truncated, self.portion = slots, truncated, portion
        self.contexts, self.under_way, self.cancelled = [], {}, []

    @property
    def free_slots(self):
        return None if self.slots is None else self.slots - len(self.under_way)

    def submit(self, draws, prompts):
        for draw in draws:
            self.contexts.append(list(prompts[draw.key]))
            self.under_way[draw] = len(self.contexts)

    def wait(self):
        done = list(self.under_way)[: self.portion]
        found = [(draw, self.under_way.pop(draw)) for draw in done]
        return [self.result(draw, n) for draw, n in found]

    def result(self, draw, n):
        logprobs = np.array([-n, -0.5], np.float32)
        return Completion(draw, [n, 1], logprobs, f"said {n}", n in self.truncated)

    def cancel(self, draws):
        self.cancelled += draws
        return sum(3 for draw in draws if self.under_way.pop(draw, None) is not None)

    def load_weights(self, weights):
        self.weights = weights


def encode(said):
    """50 for each character of a text."""
    return [50] * len(said)


def play(environment, engine=None, **options):
    engine = engine or Talking()
    playing = EpisodeEngine(engine, environment, PROBLEMS, encode, **options)
    playing.submit([DRAW], {"a": [7, 7]})
    [outcome] = playing.wait()
    assert playing.wait() == []
    return outcome


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
    outcome = play(turns, engine, encode_prompt=lambda messages: [60] * len(messages[0]["content"]))
    summary = [60] * 9
    assert engine.contexts[2:] == [summary, [*summary, 3, 1, 50]]
    assert outcome.tokens == [1, 1, 50, 50, 2, 1]
    first, second = outcome.rows([7, 7])
    assert (first.prompt, second.prompt) == ([7, 7], summary)
    assert second.tokens == [3, 1, 50, 4, 1]
    assert second.loss_mask.tolist() == [True, True, False, True, True]
    assert (outcome.reward, outcome.usage.tokens, outcome.usage.turns) == (1.0, 8, 4)
    assert outcome.transcript == "said 1\nxy\nsaid 2\nso far: x\nsaid 3\nz\nsaid 4"


def test_limits_count_all_rows_of_an_episode():
    """2 + 2 + 2 tokens of the model; the context holds 9 + 1 at most, the episode less than 6."""
    anew = Turn(anew=[{"role": "user", "content": "123456789"}], reward=0.5)
    turns, options = says(*[anew] * 9), {"encode_prompt": lambda messages: [60] * 9}
    outcome = play(turns, limits=EpisodeLimits(tokens=6), **options)
    assert (outcome.end, outcome.usage.turns, len(outcome.branches)) == ("truncated", 3, 2)
    outcome = play(turns, limits=EpisodeLimits(context=9), **options)
    assert (outcome.end, outcome.usage.turns, len(outcome.branches)) == ("truncated", 1, 0)


def test_an_episode_that_cannot_begin_anew_has_failed():
    assert play(says(Turn(anew=[{"role": "user", "content": "x"}]))).end == "failed"


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
    ],
)
def test_ends(answers, options, expected):
    outcome = play(says(*answers), limits=EpisodeLimits(**options))
    assert (outcome.end, outcome.reward, outcome.usage.turns) == expected
    assert outcome.loss_mask[-1], "what is never read is no part of an episode"


@pytest.mark.parametrize("answer", [None, "x"])
def test_an_environment_that_returns_no_turn_ends_the_run(answer):
    with pytest.raises(PluginError, match=r"`step` .* must return a rollwise\.environments\.Turn"):
        play(says(answer))


@pytest.mark.parametrize("answer, reward", [(Turn("x"), 0.0), (Turn(done=True, reward=1.0), 1.0)])
def test_a_turn_that_is_cut_ends_the_episode_with_what_it_is_worth(answer, reward):
    outcome = play(says(Turn("x"), answer), Talking(truncated=[2]))
    assert (outcome.end, outcome.reward, outcome.truncated) == ("truncated", reward, True)


def raising(error):
    def step(turn, reply):
        raise error

    return Playing(step)


def test_an_environment_that_raises_has_failed_and_a_lost_one_is_played_again():
    outcome = play(raising(KeyError("tool")))
    assert (outcome.end, outcome.reward) == ("failed", 0.0)
    lost = LostDraw(DRAW, "EpisodeLost: no server", tokens=2)
    assert play(raising(EpisodeLost("no server"))) == lost


class Unclosable(Playing):
    """Cannot be closed."""

    def begin(self, opening):
        played = super().begin(opening)
        played.close = lambda: 1 / 0
        return played


def test_an_environment_that_cannot_be_closed_is_named_and_ends_nothing_else(caplog):
    outcome = play(Unclosable(lambda turn, reply: Turn(done=True, reward=1.0)))
    assert (outcome.end, outcome.reward) == ("done", 1.0)
    assert "an episode of 'a' could not be closed: ZeroDivisionError" in caplog.text


def test_an_environment_that_raises_is_named_once_with_the_line(caplog):
    class Failing:
        def step(self, reply):
            return {}["missing"]

    class Begins(Playing):
        def begin(self, opening):
            return Failing()

    engine = EpisodeEngine(Talking(), Begins(None), PROBLEMS, encode)
    engine.submit([Draw("a", index, seed=index) for index in range(3)], {"a": [7, 7]})
    assert len(engine.wait()) == 3
    line = Failing.step.__code__.co_firstlineno + 1
    [record] = caplog.records
    assert f"Failing: `step` ({__file__}, line {line}) raised KeyError" in record.getMessage()


def test_an_environment_must_begin_an_object_with_a_step():
    class Beginning(Playing):
        def begin(self, opening):
            return None

    with pytest.raises(PluginError, match=r"Beginning: `begin` .* an object with `step`, got None"):
        play(Beginning(None))


def test_a_message_without_text_has_failed():
    outcome = play(says(Turn([{"role": "tool", "content": None}])))
    assert (outcome.end, outcome.reward) == ("failed", 0.0)


def test_a_turn_that_the_engine_loses_loses_the_episode():
    class Losing(Talking):
        def result(self, draw, n):
            return LostDraw(draw, "gone", tokens=1) if n == 2 else super().result(draw, n)

    lost = LostDraw(DRAW, "gone", tokens=2 + 1)
    assert play(says(Turn("x"), Turn("x")), Losing()) == lost


def test_what_a_session_has_lost_is_in_its_cost():
    """Draws 0 and 1 of 2 tokens a turn; the environment loses the first attempt at one."""
    attempts = iter([EpisodeLost("no server"), None, None])

    def step(turn, reply):
        if error := next(attempts):
            raise error
        return Turn(done=True, reward=1.0)

    session = RolloutSession(["a"], FixedCount(2), Rounds(2, rounds=1), seed=0)
    engine = EpisodeEngine(Talking(portion=1), Playing(step), PROBLEMS, encode)
    cost = run_session(session, engine, {"a": [7]}, grade_with(OfAnswers(), {}))
    assert (len(session.pools["a"]), session.failures) == (2, 1)
    assert (cost.tokens, cost.failed_tokens) == (3 * 2, 2)
    assert (cost + cost).failed_tokens == 4


def test_answers_that_wait_do_so_beside_each_other():
    async def step(turn, reply):
        if turn == 2:
            return Turn(done=True, reward=1.0)
        meeting.append(reply)
        while len(meeting) < 3:
            await asyncio.sleep(0)
        return Turn("x")

    meeting = []
    with EpisodeEngine(Talking(slots=3), Playing(step), PROBLEMS, encode) as engine:
        engine.submit([Draw("a", i, i) for i in range(3)], {"a": [7]})
        assert engine.free_slots == 0
        done = []
        while found := engine.wait():
            done += found
        assert engine.free_slots == 3
    assert [outcome.end for outcome in done] == ["done"] * 3


def test_what_is_cancelled_has_cost_all_its_turns():
    """a waits for its answer after 2 tokens; b draws its second turn, 3 of which are drawn."""
    never = asyncio.Event()

    async def waits():
        await never.wait()

    def step(turn, reply):
        return waits() if reply == "said 1" else Turn("x")

    a, b, c = (Draw(key, 0, seed) for seed, key in enumerate(("a", "b", "a")))
    engine = Talking(slots=2, portion=1)
    with EpisodeEngine(engine, Playing(step), PROBLEMS, encode) as playing:
        playing.submit([a, b, c], {"a": [7], "b": [8]})
        for _ in range(2):
            for result in engine.wait():
                playing._end_turn(result)
        playing._fill()
        assert playing.cancel([a]) == 2
        assert playing.cancel([b]) == 2 + 3
        assert playing.cancel([c]) == 0 == playing.cancel([a, b, c])
        assert playing.cancelled == 2
        assert playing.free_slots == 2
        assert playing.wait() == []


def test_a_slow_episode_is_cut_wherever_it_is():
    never = asyncio.Event()

    async def waits():
        await never.wait()

    limits = EpisodeLimits(seconds=10)
    answers = Playing(lambda turn, reply: Turn("x", reward=0.5) if turn == 1 else waits())
    outcome = play(answers, limits=limits, clock=iter(range(0, 1000, 5)).__next__)
    assert (outcome.end, outcome.reward, outcome.usage.turns) == ("truncated", 0.5, 2)
    assert outcome.usage.seconds >= 10

    class Stuck(Talking):
        """Draws the second turn for ever."""

        def wait(self):
            return [] if 2 in self.under_way.values() else super().wait()

    outcome = play(answers, Stuck(), limits=limits, clock=iter(range(100)).__next__)
    assert (outcome.end, outcome.reward, outcome.usage.turns) == ("truncated", 0.5, 2)
    assert outcome.usage.tokens == 2 + 3, "those of the turn that was broken off count"


def test_new_weights_begin_episodes_again():
    engine = Talking(portion=1)
    playing = EpisodeEngine(engine, says(Turn("x"), Turn(done=True)), PROBLEMS, encode)
    playing.submit([DRAW], {"a": [7]})
    [result] = engine.wait()
    playing._end_turn(result)
    playing.load_weights({"w": 1})
    [outcome] = playing.wait()
    assert engine.weights == {"w": 1}
    assert [len(context) for context in engine.contexts] == [1, 1, 4]
    assert outcome.usage.turns == 2
    assert outcome.usage.tokens == 2 + 2 + 2, "those of the attempt that was given up count"


def test_what_new_weights_broke_off_is_paid_once_whatever_comes_of_it():
    """Draw 0 is given up in its second turn, of which 3 tokens are drawn, and then cancelled."""
    engine = Talking(slots=1, portion=1)
    playing = EpisodeEngine(engine, says(Turn("x"), Turn("x")), PROBLEMS, encode)
    playing.submit([DRAW], {"a": [7]})
    [result] = engine.wait()
    playing._end_turn(result)
    playing._fill()
    playing.load_weights({})
    assert playing.cancel([DRAW]) == 2 + 3
    assert playing.cancel([DRAW]) == 0


def test_answers_that_are_ready_are_drawn_on_before_others_are_awaited():
    """The second draw's first turn takes for ever; the first is answered in the meantime."""

    async def step(turn, reply):
        return Turn(done=True, reward=1.0) if turn == 2 else Turn("x")

    class Interruptible(Talking):
        """Answers draw 0 alone; as long as that has nothing to draw, it waits to be interrupted."""

        def __init__(self):
            super().__init__()
            self.bell = threading.Semaphore(0)

        def wait(self):
            done = [draw for draw in self.under_way if draw.index == 0]
            if not done:
                assert self.bell.acquire(timeout=60), "nobody said that there is more to draw"
                return []
            return [self.result(draw, self.under_way.pop(draw)) for draw in done]

        def interrupt(self):
            self.bell.release()

    engine = Interruptible()
    with EpisodeEngine(engine, Playing(step), PROBLEMS, encode) as playing:
        playing.submit([Draw("a", i, i) for i in range(2)], {"a": [7]})
        [outcome] = playing.wait()
        assert (outcome.draw.index, outcome.usage.turns) == (0, 2)


def test_the_engine_is_interrupted_when_the_time_of_an_episode_is_over():
    rang = threading.Event()

    class Stuck(Talking):
        def wait(self):
            assert rang.wait(timeout=60), "nobody said that the time is over"
            return []

        def interrupt(self):
            rang.set()

    limits = EpisodeLimits(seconds=0.01)
    outcome = play(says(Turn("x")), Stuck(), limits=limits)
    assert (outcome.end, outcome.usage.turns, outcome.usage.tokens) == ("truncated", 1, 3)


@pytest.mark.parametrize("blocks", [True, False], ids=["the loop is blocked", "cancel is ignored"])
def test_an_environment_that_does_not_end_is_left_behind(blocks, caplog):
    free, begun = threading.Event(), threading.Event()

    async def step(turn, reply):
        begun.set()
        while not free.is_set():
            if blocks:
                free.wait()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        return Turn(done=True)

    turns = Talking()
    engine = EpisodeEngine(turns, Playing(step), PROBLEMS, encode, close_seconds=0.05)
    engine.submit([DRAW], {"a": [7]})
    [result] = turns.wait()
    engine._end_turn(result)
    assert begun.wait(60)
    of_environment = engine._environment_loop._thread
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert "is left behind" in caplog.text
    free.set()
    of_environment.join(60)


class OfAnswers(Grader):
    def grade(self, responses, answers):
        self.graded = list(zip(responses, answers, strict=True))
        return np.ones(len(responses))


def test_a_session_of_episodes_that_are_graded_by_either():
    """The environment rewards what it ends with 0.25; the grader gives 1 to the rest."""
    by_key = {"a": Turn(done=True, reward=0.25), "b": Turn(done=True)}

    class ByKey(EpisodeEnvironment):
        def begin(self, opening):
            key = opening.messages[0]["content"]
            first = iter([Turn("x")])
            return SimpleNamespace(step=lambda reply: next(first, by_key[key]))

    session = RolloutSession(["a", "b"], FixedCount(2), Rounds(2, rounds=1), seed=0)
    grader = OfAnswers()
    answers = {key: problem.answer for key, problem in PROBLEMS.items()}
    engine = EpisodeEngine(Talking(), ByKey(), PROBLEMS, encode)
    cost = run_session(session, engine, {"a": [7], "b": [8]}, grade_with(grader, answers))
    assert session.pools["a"].rewards.tolist() == [0.25, 0.25]
    assert session.pools["b"].rewards.tolist() == [1.0, 1.0]
    assert {answer for _, answer in grader.graded} == {"of b"}
    assert cost.tokens == 4 * 2 * 2


def test_surplus_episodes_are_cancelled_under_way():
    """One correct and one incorrect of draw 0 and 1 suffice; the others are in a later turn."""
    engine = Talking(slots=8, portion=1)
    worth = iter([1.0, 0.0])
    play_on = Playing(
        lambda turn, reply: Turn(done=True, reward=next(worth)) if turn == 2 else Turn("x")
    )
    playing = EpisodeEngine(engine, play_on, PROBLEMS, encode)
    session = RolloutSession(["a"], Balanced(1, 1), Streamed(max_samples=8), seed=0)
    cost = run_session(session, playing, {"a": [7]}, grade_with(OfAnswers(), {}))
    assert len(session.pools["a"]) == 2
    assert playing.cancelled == session.surplus > 0
    broken_off = len(engine.cancelled)
    assert cost.tokens == 2 * (len(engine.contexts) - broken_off) + 3 * broken_off


def test_the_built_in_engine_can_be_interrupted_and_draws_on():
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
    engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=5)
    key, prompt = next(iter(PROMPTS.items()))
    draws = [Draw(key, index, index) for index in range(7)]
    engine.submit(draws, {key: prompt})
    engine.interrupt()
    assert engine.wait() == []
    done = []
    while found := engine.wait():
        done += found
    assert {completion.draw for completion in done} == set(draws)


def test_an_engine_on_an_event_loop_can_be_interrupted():
    class Idle(AsyncEngine):
        submit = load_weights = None

        async def _release(self):
            pass

    with Idle(slots=1, name="idle") as engine:
        engine._begin(DRAW, asyncio.Event().wait())
        engine.interrupt()
        assert engine.wait() == []
        assert engine.cancel([DRAW]) == 0


@dataclass(frozen=True)
class ThreeTurns(EpisodeEnvironment):
    """Says 12 twice, then ends."""

    def begin(self, opening):
        answers = iter([Turn("12"), Turn("12"), Turn(done=True)])
        return SimpleNamespace(step=lambda reply: next(answers))


class TestEpisodesByTheBuiltInEngine(EngineContract):
    prompts = PROMPTS

    def make(self):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path("running-sums"))
        engine = TransformersEngine(make_model(), tokenizer, LIMIT, batch_size=5)
        return EpisodeEngine(
            engine,
            ThreeTurns(),
            {key: PROBLEMS["a"] for key in PROMPTS},
            lambda says: tokenizer.encode(says, add_special_tokens=False),
            EpisodeLimits(context=engine.context, turn_tokens=LIMIT),
        )

    def weights(self):
        return make_model(seed=1).state_dict()

    def test_episodes_have_several_turns(self):
        with self.engine() as engine:
            done = self.complete(engine, self.draws(6)).values()
        assert max(outcome.usage.turns for outcome in done) == 3
        assert all(isinstance(outcome, Episode) for outcome in done)


@pytest.mark.parametrize(
    "said, answer",
    [("12-9", "3 "), ("7 12 -4-9", "-13 "), ("12", "? "), ("12-", "? "), ("", "? ")],
)
def test_the_calculator_takes_the_last_word(said, answer):
    playing = Calculator(failure_rate=0).begin(Opening([], "", seed=0))
    assert playing.step(said) == Turn(answer)
    assert playing.step("3 =3") == Turn(done=True)


def test_the_calculator_fails_as_often_as_it_is_told_and_alike_for_a_seed():
    def answers(seed):
        playing = Calculator(failure_rate=0.25).begin(Opening([], "", seed))
        return [playing.step("1+1").says for _ in range(2000)]

    assert answers(3) == answers(3) != answers(4)
    share = answers(3).count("? ") / 2000
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
    with pytest.raises(ValueError, match="failure_rate"):
        Calculator(failure_rate=1.5)
