"""What any engine must do, as tests: subclass, write `make`, and run pytest.

from rollwise.engines.testing import EngineContract

class TestMyEngine(EngineContract):
    def make(self):
        return MyEngine(model, max_new_tokens=16)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rollwise.engines.engine import Engine
from rollwise.sampling import Balanced, Draw, RolloutSession, Rounds, Schedule, Streamed, draw_seed
from rollwise.sampling.draws import Key
from rollwise.step.outcomes import LostDraw, Outcome
from rollwise.step.session import finished, run_session


class EngineContract:
    """The contract of an engine.

    Attributes:
        prompts: The token ids of the prompts that are drawn for, at least two.
        repeatable: Whether weights, prompt and seed determine a response; False if they do not.
    """

    prompts: Mapping[Key, Sequence[int]] = {"short": [5, 9], "long": [12, 6, 5, 9, 13, 4, 3]}
    repeatable = True

    def make(self) -> Engine:
        """Make the engine to test."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Any] | None:
        """Return weights to load; by default {}, which changes nothing. None: they are fixed."""
        return {}

    def test_draws_complete_once_and_whole(self) -> None:
        """Every draw comes back once, with what is documented; nothing comes once none is left."""
        draws = self.draws(8)
        with self.engine() as engine:
            assert list(engine.wait()) == []
            completions = self.complete(engine, draws)
            assert list(engine.wait()) == [], "a draw was returned twice"
        for completion in completions.values():
            assert completion.tokens and {*map(type, completion.tokens)} == {int}
            logprobs = completion.logprobs
            assert logprobs.shape == (len(completion.tokens),)
            assert logprobs.dtype == np.float32
            assert not np.any(logprobs > 0), "a log-probability is above 0"
            assert (type(completion.text), type(completion.truncated)) == (str, bool)

    def test_a_response_does_not_depend_on_its_company(self) -> None:
        """A draw gets one response, alone or among others, in any order."""
        draws = self.draws(4)
        with self.engine() as engine:
            together = self.tokens(engine, draws)
            backwards = self.tokens(engine, draws[::-1])
            alone = [self.tokens(engine, [draw])[draw] for draw in draws]
        if self.repeatable:
            assert backwards == together, "the order of submission changes responses"
            assert alone == [together[draw] for draw in draws], "other responses change a response"

    def test_a_cancelled_draw_frees_its_slot_and_never_comes(self) -> None:
        """It can be submitted again."""
        cancelled, kept = self.draws(4)[::2], self.draws(4)[1::2]
        with self.engine() as engine:
            slots = engine.free_slots
            engine.submit([*cancelled, *kept], self.prompts)
            assert slots is None or (engine.free_slots or 0) <= max(0, slots - len(kept) * 2)
            assert engine.cancel(cancelled) >= 0
            assert set(self.complete(engine, [], in_flight=kept)) == set(kept)
            assert engine.free_slots == slots
            assert engine.cancel([*cancelled, *kept]) == 0, "what is not in flight has no tokens"
            assert set(self.complete(engine, cancelled)) == set(cancelled)

    def test_it_draws_on_after_sleep_and_new_weights(self) -> None:
        """Sleep changes no response, and neither do weights if there are none."""
        draws, weights = self.draws(4), self.weights()
        with self.engine() as engine:
            before = self.tokens(engine, draws)
            engine.sleep()
            slept = self.tokens(engine, draws)
            if weights is not None:
                engine.load_weights(weights)
            loaded = self.tokens(engine, draws)
            if engine.ignore_ends():
                assert all(c.truncated for c in self.complete(engine, draws).values())
        if self.repeatable:
            assert slept == before, "sleep changes responses"
            assert weights or loaded == before, "no weights change responses"

    def test_sessions_get_the_same_pools_in_rounds_and_streamed(self) -> None:
        """Pools hold the same responses in draw order, under any schedule."""
        with self.engine() as engine:
            rounds = self._pools(engine, Rounds(size=4, rounds=3))
            streamed = self._pools(engine, Streamed(max_samples=12))
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
        """Submit draws, and resubmit those that get lost; return all completions."""
        engine.submit(draws, self.prompts)
        expected, done = {*draws, *in_flight}, dict[Draw, Outcome]()
        attempts = 10 * len(expected)
        while results := engine.wait():
            for result in results:
                assert result.draw in expected - done.keys(), f"{result.draw}: unasked, or twice"
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

    def _pools(self, engine: Engine, schedule: Schedule) -> dict[Key, list[list[int]]]:
        """Run a session; return the tokens of each prompt's responses, in draw order."""
        session = RolloutSession(list(self.prompts), Balanced(2, 2), schedule, seed=3)
        run_session(
            session,
            engine,
            self.prompts,
            lambda done: [finished(float(sum(outcome.tokens) % 2)) for outcome in done],
        )
        return {key: [r.tokens for r in pool.responses] for key, pool in session.pools.items()}
