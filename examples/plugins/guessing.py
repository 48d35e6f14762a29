"""An environment of several turns: the model guesses a number, and is told where to look."""

import random
from dataclasses import dataclass, field

from rollwise.environments import EpisodeEnvironment, Opening, Turn


@dataclass(frozen=True)
class Guessing(EpisodeEnvironment):
    """Answers each guess by `higher`, `lower`, or the end."""

    highest: int = field(default=100, metadata={"help": "The largest number to guess."})

    def begin(self, opening: Opening) -> "Game":
        """Begin a game; the number is set by the draw, so it is the same if drawn again."""
        return Game(random.Random(opening.seed).randint(1, self.highest))


class Game:
    """One game."""

    def __init__(self, number: int) -> None:
        self.number = number

    def step(self, reply: str) -> Turn:
        """Answer a guess."""
        words = reply.split() or [""]
        if not words[-1].isdecimal():
            return Turn("a number, please", reward=0.0)
        guess = int(words[-1])
        if guess == self.number:
            return Turn(done=True, reward=1.0)
        return Turn("higher" if guess < self.number else "lower", reward=0.0)
