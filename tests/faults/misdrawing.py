"""An engine that misbehaves in a share of its calls, as a plug-in: the built-in one, wrapped."""

import asyncio
import os
import random
from dataclasses import dataclass, field

from rollwise.engines import ENGINES, Engine, EngineSettings, LostDraw
from rollwise.errors import EngineError


@dataclass(frozen=True)
class Misdrawing(EngineSettings):
    """Its random numbers come from the environment, so that another start has others."""

    needs_model = True

    fault: str = field(default="late", metadata={"help": "What it does wrong."})
    rate: float = field(default=0.1, metadata={"help": "In this share of its calls."})

    def open(self, inputs):
        luck = random.Random(os.environ["MISBEHAVIOUR"])
        engine = ENGINES["transformers"]().open(inputs)
        return Faulty(engine, KINDS[self.fault], lambda: luck.random() < self.rate)


class Faulty(Engine):
    """Completes draws by the engine within, but for a fault."""

    def __init__(self, engine, fault, unlucky):
        self.engine, self.fault, self.unlucky, self.lost = engine, fault, unlucky, set()

    @property
    def slots(self):
        return self.engine.slots

    async def complete(self, draw, prompt):
        response = await self.engine.complete(draw, prompt)
        await self.fault(self, draw)
        return response

    def load_weights(self, weights):
        self.engine.load_weights(weights)


async def be_right(self, draw): ...


async def be_late(self, draw):
    """Hold a response back, so that others overtake it."""
    while self.unlucky():
        await asyncio.sleep(0.01)


async def lose(self, draw):
    """Lose draws, each at most once."""
    if draw not in self.lost and self.unlucky():
        self.lost.add(draw)
        raise LostDraw("it misbehaves")


async def hang(self, draw):
    """Never answer."""
    if self.unlucky():
        await asyncio.Event().wait()


def fail(error):
    """Raise, as engines of ours do, or what is an error of its author's."""

    async def maybe(self, draw):
        if self.unlucky():
            raise error("it misbehaves")

    return maybe


KINDS = {
    "right": be_right,
    "late and out of order": be_late,
    "lost": lose,
    "raises": fail(EngineError),
    "breaks": fail(KeyError),
    "hangs": hang,
}
