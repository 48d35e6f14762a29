"""An engine and environments that do as they are told, for tests of episodes."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from tiny_models import PROMPTS

from rollwise.engines import Completion, Engine, EpisodeEngine
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


def encode_prompt(messages):
    """60 for each character of the first message."""
    return [60] * len(messages[0]["content"])


def playing_by(environment, engine=None, **options):
    """An engine of episodes, by default over a new `Talking`."""
    return EpisodeEngine(
        engine or Talking(), environment, PROBLEMS, encode, encode_prompt, **options
    )


def play(environment, engine=None, **options):
    playing = playing_by(environment, engine, **options)
    playing.submit([DRAW], {"a": [7, 7]})
    [outcome] = playing.wait()
    assert playing.wait() == []
    return outcome
