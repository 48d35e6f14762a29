"""A session through an engine and a grader, whatever the engine's timing."""

import random
import threading
from collections import Counter
from concurrent.futures import Future

import numpy as np
import pytest

from rollwise.engines import Completion, LostDraw
from rollwise.errors import EngineError
from rollwise.grading import Grader
from rollwise.sampling import Balanced, RolloutSession, Rounds, Streamed
from rollwise.step.session import grade_with, run_session

PASS_RATES = {"easy": 0.9, "even": 0.5, "hard": 0.1, "hopeless": 0.0}
PROMPTS = {key: [i] for i, key in enumerate(PASS_RATES)}
ANSWERS = {key: f"answer to {key}" for key in PASS_RATES}


def text_of(draw):
    """What the fakes draw: the answer or nothing, by the draw's seed alone."""
    lucky = random.Random(draw.seed).random() < PASS_RATES[draw.key]
    return ANSWERS[draw.key] if lucky else ""


class Engine:
    """Completes some of its draws at a time, in an order of its own."""

    def __init__(self, seed=0, portion=5):
        self.random, self.portion = random.Random(seed), portion
        self.under_way, self.submitted, self.cancelled = [], [], []

    free_slots = None

    def submit(self, draws, prompts):
        assert all(draw.key in prompts for draw in draws)
        self.submitted += draws
        self.under_way += draws

    def wait(self):
        self.random.shuffle(self.under_way)
        done = [self.under_way.pop() for _ in range(min(self.portion, len(self.under_way)))]
        return [self.outcome(draw) for draw in done]

    def outcome(self, draw):
        return Completion(draw, [1, 2], np.zeros(2, np.float32), text_of(draw), False)

    def cancel(self, draws):
        self.cancelled += draws
        return 0


class Lossy(Engine):
    """Loses each draw's first `losses` attempts."""

    def __init__(self, losses, only=lambda draw: True, **options):
        super().__init__(**options)
        self.losses, self.only, self.attempts = losses, only, Counter()

    def outcome(self, draw):
        self.attempts[draw] += 1
        if self.attempts[draw] <= self.losses and self.only(draw):
            return LostDraw(draw, "the server restarted")
        return super().outcome(draw)


class EqualText(Grader):
    """1.0 where the response is the answer; the answer must be the right one."""

    def grade(self, responses, answers):
        assert all(answer in ANSWERS.values() for answer in answers)
        return np.array([float(r == a) for r, a in zip(responses, answers, strict=True)])


ROUNDS = Rounds(size=4, rounds=3)


def make_session(schedule=ROUNDS):
    return RolloutSession(PASS_RATES, Balanced(2, 2), schedule, seed=5, step=2)


def pools_from(engine, *schedule):
    session = make_session(*schedule)
    run_session(session, engine, PROMPTS, grade_with(EqualText(), ANSWERS))
    assert session.done
    return session, {key: pool.rewards.tolist() for key, pool in session.pools.items()}


@pytest.fixture(scope="module")
def expected():
    """The pools as if each response had been drawn, graded and recorded by itself, in order."""
    session = make_session()
    while draws := session.next_draws():
        for draw in draws:
            session.record(draw, float(text_of(draw) == ANSWERS[draw.key]))
    return {key: pool.rewards.tolist() for key, pool in session.pools.items()}


@pytest.mark.parametrize("portion", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_pools_do_not_hang_on_the_order_of_completion(expected, seed, portion):
    session, pools = pools_from(engine := Engine(seed, portion))
    assert pools == expected
    assert len(set(engine.submitted)) == len(engine.submitted) == sum(map(len, expected.values()))
    for key, pool in session.pools.items():
        places = [(c.draw.key, c.draw.index) for c in pool.responses]
        assert places == [(key, i) for i in range(len(pool))]
        assert [c.text == ANSWERS[key] for c in pool.responses] == pool.correct.tolist()


@pytest.mark.parametrize("losses", [1, 2])
def test_lost_draws_are_drawn_again_and_nothing_counts_twice(expected, losses):
    session, pools = pools_from(engine := Lossy(losses, seed=1))
    assert pools == expected
    drawn = sum(map(len, expected.values()))
    assert session.failures == losses * drawn
    assert session.lost == 0
    assert set(Counter(engine.submitted).values()) == {losses + 1}


class Repeating(Engine):
    """Answers twice, at once and later, also where the first answer was a loss."""

    def wait(self):
        answers = super().wait()
        late = [self.outcome(draw) for draw in self.submitted[: self.random.randrange(4)]]
        return [*answers, *answers[:2], *(late if answers else [])]


class LossyAndRepeating(Repeating, Lossy):
    pass


@pytest.mark.parametrize("schedule", [Rounds(4, 3), Streamed(12)], ids=["rounds", "streamed"])
@pytest.mark.parametrize("kind", [Repeating, lambda seed: LossyAndRepeating(1, seed=seed)])
def test_an_answer_that_comes_again_does_not_count(kind, schedule, caplog):
    _, wanted = pools_from(Engine(), schedule)
    for seed in range(5):
        assert pools_from(kind(seed=seed), schedule)[1] == wanted
    assert "twice; the first answer counts" in caplog.text


class Silent(Engine):
    """Forgets one draw without a word."""

    def submit(self, draws, prompts):
        super().submit(draws, prompts)
        self.under_way = [draw for draw in self.under_way if (draw.key, draw.index) != ("hard", 2)]


class Hanging(Engine):
    """Answers a few times, and then never again."""

    def wait(self):
        if len(self.submitted) > len(self.under_way):
            threading.Event().wait(300)
        return super().wait()


class HangingGrader(EqualText):
    """Promises rewards and gives none."""

    def submit(self, responses, answers):
        return [Future() for _ in responses]


@pytest.mark.parametrize(
    ("engine", "grader", "limit", "said"),
    [
        (Silent(), EqualText(), 600, "Silent lost draws without reporting them"),
        (Hanging(), EqualText(), 0.05, r"`stall_limit`\): Hanging or the grader hangs"),
        (Engine(), HangingGrader(), 0.05, r"`stall_limit`\): Engine or the grader hangs"),
    ],
)
def test_what_goes_silent_or_hangs_is_an_error_not_an_endless_wait(engine, grader, limit, said):
    grade = grade_with(grader, ANSWERS)
    with pytest.raises(EngineError, match=said):
        run_session(make_session(), engine, PROMPTS, grade, stall_limit=limit)


@pytest.mark.parametrize("speculation", [0.25, 1.0])
def test_a_streaming_schedule_fills_the_slots_that_are_free(speculation):
    """Also one that draws nothing ahead: its draws come in the order of the schedule."""

    class Slots(Engine):
        @property
        def free_slots(self):
            return 3 - len(self.under_way)

        def submit(self, draws, prompts):
            assert len(draws) <= self.free_slots
            super().submit(draws, prompts)

        def cancel(self, draws):
            self.under_way = [draw for draw in self.under_way if draw not in draws]
            return super().cancel(draws)

    pools_from(engine := Slots(portion=1), Streamed(12, speculation))
    assert [draw.key for draw in engine.submitted[:3]] == list(PASS_RATES)[:3]
    assert speculation < 1.0 or not engine.cancelled
