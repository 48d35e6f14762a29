"""What any engine must do, as tests: subclass, write `make`, and run pytest.

from rollwise.engines.testing import EngineContract

class TestMyEngine(EngineContract):
    def make(self):
        return MyEngine(model, max_new_tokens=16)
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rollwise import loops
from rollwise.engines.engine import Engine
from rollwise.sampling import Draw, draw_seed
from rollwise.step.response import LostDraw, Prompts, Response
from rollwise.step.session import checked_response

LOSSES = 10
"""How often a draw may get lost."""


async def complete_one(engine: Engine, draw: Draw, prompts: Prompts) -> Response:
    """Return the response to a draw, which is drawn again a few times if it gets lost."""
    for _ in range(LOSSES):
        with suppress(LostDraw):
            return checked_response(engine, await engine.complete(draw, prompts[draw.key]))
    return checked_response(engine, await engine.complete(draw, prompts[draw.key]))


def complete(engine: Engine, draws: Sequence[Draw], prompts: Prompts) -> dict[Draw, Response]:
    """Return the response to each draw; all are drawn together."""

    async def complete_all() -> list[Response]:
        return await asyncio.gather(*(complete_one(engine, draw, prompts) for draw in draws))

    return dict(zip(draws, loops.run(complete_all()), strict=True))


class EngineContract:
    """The contract of an engine.

    Attributes:
        prompts: The token ids of the prompts that are drawn for, at least two.
        repeatable: Whether weights, prompt and seed determine a response; False if they do not.
    """

    prompts: ClassVar[Prompts] = {"short": [5, 9], "long": [12, 6, 5, 9, 13, 4, 3]}
    repeatable = True

    def make(self) -> Engine:
        """Make the engine to test."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Any] | None:
        """Return weights to load; by default {}, which changes nothing. None: they are fixed."""
        return {}

    def test_responses_are_whole(self) -> None:
        """Every draw gets a response, with what is documented; closing twice does no harm."""
        with self.make() as engine:
            responses = complete(engine, self.draws(8), self.prompts)
        engine.close()
        for response in responses.values():
            assert response.tokens and {*map(type, response.tokens)} == {int}
            assert (type(response.text), type(response.truncated)) == (str, bool)

    def test_a_response_does_not_depend_on_its_company(self) -> None:
        """A draw gets one response, alone or among others, in any order."""
        draws = self.draws(4)
        with self.make() as engine:
            together = self.tokens(engine, draws)
            backwards = self.tokens(engine, draws[::-1])
            alone = [self.tokens(engine, [draw])[draw] for draw in draws]
        if self.repeatable:
            assert backwards == together, "the order of draws changes responses"
            assert alone == [together[draw] for draw in draws], "other responses change a response"

    def test_it_continues_after_draws_were_cancelled(self) -> None:
        """Cancelled draws end, the others get their responses, and all can be drawn again."""
        draws = self.draws(4)
        with self.make() as engine:
            wanted = self.tokens(engine, draws)
            kept = loops.run(self._cancel(engine, draws[::2], draws[1::2]))
            again = self.tokens(engine, draws)
        if self.repeatable:
            assert kept == [wanted[draw] for draw in draws[1::2]], "cancelling changes responses"
            assert again == wanted, "what was cancelled changes responses"

    def test_it_draws_on_after_sleep_and_new_weights(self) -> None:
        """Sleep changes no response, and neither do weights if there are none."""
        draws, weights = self.draws(4), self.weights()
        with self.make() as engine:
            before = self.tokens(engine, draws)
            engine.sleep()
            slept = self.tokens(engine, draws)
            if weights is not None:
                engine.load_weights(weights)
            loaded = self.tokens(engine, draws)
            if engine.ignore_ends():
                assert all(r.truncated for r in complete(engine, draws, self.prompts).values())
        if self.repeatable:
            assert slept == before, "sleep changes responses"
            assert weights or loaded == before, "no weights change responses"

    def draws(self, count: int) -> list[Draw]:
        """Return `count` draws of each prompt."""
        return [Draw(key, i, draw_seed(7, 0, key, i)) for key in self.prompts for i in range(count)]

    def tokens(self, engine: Engine, draws: Sequence[Draw]) -> dict[Draw, list[int]]:
        """Complete draws; return their tokens."""
        responses = complete(engine, draws, self.prompts)
        return {draw: list(response.tokens) for draw, response in responses.items()}

    async def _cancel(
        self, engine: Engine, cancelled: Sequence[Draw], kept: Sequence[Draw]
    ) -> list[list[int]]:
        """Begin draws, cancel some of them, and return the tokens of the others."""
        stopped = [
            asyncio.create_task(engine.complete(draw, self.prompts[draw.key])) for draw in cancelled
        ]
        others = [asyncio.create_task(complete_one(engine, draw, self.prompts)) for draw in kept]
        for _ in range(20):  # in which an engine on this loop draws some tokens of each
            await asyncio.sleep(0)
        stopped = [task for task in stopped if task.cancel()]
        for end in await asyncio.gather(*stopped, return_exceptions=True):
            if not isinstance(end, LostDraw | asyncio.CancelledError):
                raise AssertionError(f"a cancelled draw ended with {end!r}")
        return [list((await task).tokens) for task in others]
