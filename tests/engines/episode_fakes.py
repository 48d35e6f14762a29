"""An engine and environments that do as they are told, for tests of episodes."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from tiny_models import PROMPTS

from rollwise import loops
from rollwise.engines import Engine, EpisodeEngine, Response
from rollwise.environments import EpisodeEnvironment
from rollwise.sampling import Draw

PROBLEMS = {
    key: SimpleNamespace(messages=[{"role": "user", "content": str(key)}], answer=f"of {key}")
    for key in ("a", "b", *PROMPTS)
}

DRAW = Draw("a", 0, seed=11)


@dataclass(frozen=True)
class Beginning(EpisodeEnvironment):
    """Begins by a function of the opening."""

    make: object

    def begin(self, opening):
        return self.make(opening)


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
    """Draws the tokens [n, 1] in the n-th context that it is given."""

    def __init__(self, slots=None, truncated=()):
        self.slots, self.truncated = slots, truncated
        self.draws, self.contexts = [], []

    async def complete(self, draw, prompt):
        self.draws.append(draw)
        self.contexts.append(list(prompt))
        n = len(self.contexts)
        await asyncio.sleep(0)  # others draw meanwhile
        logprobs = np.array([-n, -0.5], np.float32)
        return Response([n, 1], logprobs, f"said {n}", n in self.truncated)

    def load_weights(self, weights): ...


def encode(said):
    """50 for each character of a text."""
    return [50] * len(said)


def encode_prompt(messages):
    """60 for each character of the first message."""
    return [60] * len(messages[0]["content"])


def playing_by(environment, engine=None, **options):
    """An engine of episodes, by default over a new `Talking`."""
    return EpisodeEngine(
        engine or Talking(), environment, PROBLEMS, encode, encode_prompt, **options
    )


def play(environment, engine=None, **options):
    return loops.run(playing_by(environment, engine, **options).complete(DRAW, [7, 7]))
