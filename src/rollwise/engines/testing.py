"""What any engine must do, as tests: subclass, write `make`, and run pytest.

    from rollwise.engines.testing import EngineContract

    class TestMyEngine(EngineContract):
        def make(self):
            return MyEngine(model, max_new_tokens=16)

Each test makes an engine of its own and closes it. The tests import no test
framework: a runner that collects methods named `test_...` is enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from rollwise.engines.engine import Engine
from rollwise.sampling import Balanced, Draw, RolloutSession, Rounds, Schedule, Streamed, draw_seed
from rollwise.sampling.draws import Key
from rollwise.step.outcomes import LostDraw, Outcome
from rollwise.step.session import run_session

ATTEMPTS = 10
"""How often a draw may be lost before a test fails."""


class EngineContract:
    """The contract of an engine.

    Attributes:
        prompts: The token ids of the prompts that are drawn for, at least two.
        repeatable: Whether a draw's response depends on the weights, the prompt and the seed alone,
            as it should. Set it to False for a server that ignores seeds.
    """

    prompts: Mapping[Key, Sequence[int]] = {"short": [5, 9], "long": [12, 6, 5, 9, 13, 4, 3]}
    repeatable = True

    def make(self) -> Engine:
        """Make the engine to test."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Any] | None:
        """Return weights to load, by name: by default {}, which must change nothing.

        None says that the engine's weights cannot be changed.
        """
        return {}

    def test_each_draw_completes_once(self) -> None:
        """Every draw comes back, and none twice; nothing comes where nothing is in flight."""
        draws = self.draws(8)
        with self.engine() as engine:
            assert list(engine.wait()) == []
            assert set(self.complete(engine, draws)) == set(draws)
            engine.submit([], self.prompts)
            assert list(engine.wait()) == [], "a draw was returned twice"

    def test_completions_are_whole(self) -> None:
        """Tokens, log-probabilities and text have the documented types and shapes."""
        with self.engine() as engine:
            for completion in self.complete(engine, self.draws(4)).values():
                assert completion.tokens, f"{completion.draw} has no token"
                assert all(type(token) is int for token in completion.tokens)
                assert completion.logprobs.shape == (len(completion.tokens),)
                assert completion.logprobs.dtype == np.float32
                assert not np.any(completion.logprobs > 0), "a log-probability is above 0"
                assert isinstance(completion.text, str)
                assert isinstance(completion.truncated, bool)

    def test_a_response_does_not_depend_on_its_company(self) -> None:
        """A draw gets one response, alone or among others, in any order."""
        draws = self.draws(4)
        with self.engine() as engine:
            together = self.tokens(engine, draws)
            backwards = self.tokens(engine, draws[::-1])
            alone = [self.tokens(engine, [draw])[draw] for draw in draws]
        if self.repeatable:
            assert backwards == together, "the order of submission changes responses"
            assert alone == [together[draw] for draw in draws], (
                "what is drawn beside a response changes it"
            )

    def test_free_slots_are_free_again(self) -> None:
        """Draws take slots; those that have ended or were cancelled give them back."""
        draws = self.draws(3)
        with self.engine() as engine:
            before = engine.free_slots
            if before is None:
                return
            assert before > 0
            engine.submit(draws, self.prompts)
            assert engine.free_slots is not None
            assert 0 <= engine.free_slots <= max(0, before - len(draws))
            engine.cancel(draws[:2])
            self.complete(engine, [], in_flight=draws[2:])
            assert engine.free_slots == before

    def test_nothing_comes_of_a_cancelled_draw(self) -> None:
        """A cancelled draw is not returned, and can be submitted again."""
        cancelled, kept = self.draws(4)[::2], self.draws(4)[1::2]
        with self.engine() as engine:
            engine.submit([*cancelled, *kept], self.prompts)
            assert engine.cancel(cancelled) >= 0
            assert set(self.complete(engine, [], in_flight=kept)) == set(kept)
            assert engine.cancel([*cancelled, *kept]) == 0, "what is not in flight has no tokens"
            assert set(self.complete(engine, cancelled)) == set(cancelled)

    def test_it_draws_on_after_sleep_and_new_weights(self) -> None:
        """Sleep changes no response, and neither do weights if there are none."""
        draws, weights = self.draws(4), self.weights()
        with self.engine() as engine:
            before = self.tokens(engine, draws)
            engine.sleep()
            engine.sleep()
            slept = self.tokens(engine, draws)
            engine.sleep()
            if weights is not None:
                engine.load_weights(weights)
            loaded = self.tokens(engine, draws)
        if self.repeatable:
            assert slept == before, "sleep changes responses"
            assert weights or loaded == before, "no weights change responses"

    def test_responses_are_as_long_as_they_may_be_without_ends(self) -> None:
        """If the engine can `ignore_ends`, all responses are cut after it."""
        with self.engine() as engine:
            if engine.ignore_ends():
                completed = self.complete(engine, self.draws(4)).values()
                assert all(outcome.truncated for outcome in completed), "a response has ended"

    def test_sessions_get_the_same_pools_in_rounds_and_streamed(self) -> None:
        """Pools hold the same responses in draw order, under any schedule."""
        with self.engine() as engine:
            rounds = self.pools(engine, Rounds(size=4, rounds=3))
            streamed = self.pools(engine, Streamed(max_samples=12))
        for key in self.prompts if self.repeatable else ():
            shared = min(len(rounds[key]), len(streamed[key]))
            assert shared > 0
            assert rounds[key][:shared] == streamed[key][:shared]

    def draws(self, count: int) -> list[Draw]:
        """Return `count` draws of each prompt."""
        return [Draw(key, i, draw_seed(7, 0, key, i)) for key in self.prompts for i in range(count)]

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Make an engine, and close it."""
        with self.make() as engine:
            yield engine

    def complete(
        self, engine: Engine, draws: Sequence[Draw], in_flight: Sequence[Draw] = ()
    ) -> dict[Draw, Outcome]:
        """Submit draws, and those that get lost again; return all completions."""
        engine.submit(draws, self.prompts)
        expected, done = {*draws, *in_flight}, dict[Draw, Outcome]()
        attempts = ATTEMPTS * max(1, len(expected))
        while results := engine.wait():
            for result in results:
                assert result.draw in expected, f"{result.draw} was not asked for"
                assert result.draw not in done, f"{result.draw} was returned twice"
                if isinstance(result, LostDraw):
                    attempts -= 1
                    assert attempts > 0, f"draws are lost again and again: {result.reason}"
                    engine.submit([result.draw], self.prompts)
                else:
                    done[result.draw] = result
        assert done.keys() == expected, "draws in flight were not returned"
        return done

    def tokens(self, engine: Engine, draws: Sequence[Draw]) -> dict[Draw, list[int]]:
        """Complete draws; return their tokens."""
        return {draw: list(done.tokens) for draw, done in self.complete(engine, draws).items()}

    def pools(self, engine: Engine, schedule: Schedule) -> dict[Key, list[list[int]]]:
        """Run a session; return the tokens of each prompt's responses, in draw order."""
        session = RolloutSession(list(self.prompts), Balanced(2, 2), schedule, seed=3)
        run_session(session, engine, self.prompts, _grade)
        found = {}
        for key, pool in session.pools.items():
            indices = [response.draw.index for response in pool.responses]
            assert indices == sorted(set(indices)), "a pool is out of order"
            found[key] = [response.tokens for response in pool.responses]
        return found


def _grade(completions: Sequence[Outcome]) -> list[Future[float]]:
    """Reward responses whose tokens have an even sum."""
    rewards: list[Future[float]] = [Future() for _ in completions]
    for completion, reward in zip(completions, rewards, strict=True):
        reward.set_result(float(sum(completion.tokens) % 2 == 0))
    return rewards
