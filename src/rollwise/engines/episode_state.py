"""An episode under way, and where it is cut."""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rollwise.environments.episodes import Play, Turn
from rollwise.sampling import Draw
from rollwise.sampling.checks import above_zero, at_least
from rollwise.step.episodes import Span
from rollwise.step.outcomes import Completion


@dataclass(frozen=True)
class EpisodeLimits:
    """Where an episode is cut.

    Attributes:
        turns: The most turns of the model.
        tokens: No turn begins once the episode has this many, the environment's included.
        seconds: From the first turn on; None for no limit.
        context: The most tokens of prompt and episode; infinite if unknown.
        turn_tokens: The most tokens of a turn, which the context must have room for; None if
            unknown.
    """

    turns: int = 16
    tokens: int = 8192
    seconds: float | None = None
    context: float = math.inf
    turn_tokens: int | None = None

    def __post_init__(self) -> None:
        at_least("turns", self.turns, 1)
        at_least("tokens", self.tokens, 1)
        if self.seconds is not None:
            above_zero("seconds", self.seconds)


@dataclass(eq=False)
class Playing:
    """An episode under way."""

    draw: Draw
    # Each prompt that the model was given, with what followed from it; the last goes on.
    rows: list[tuple[Sequence[int], list[Span]]]
    began: float
    drawn: int = 0  # tokens of the model
    said: list[str] = field(default_factory=list)  # by both sides, for people
    turns: int = 0
    last: Completion | None = None
    play: Play | None = None
    turn: Draw | None = None  # the one that is being drawn
    answering: "Future[Turn] | None" = None  # what an environment is about to answer
    reward: float = 0.0

    @property
    def context(self) -> list[int]:
        """The last prompt, and all that followed from it."""
        prompt, spans = self.rows[-1]
        return [*prompt, *(token for span in spans for token in span.tokens)]

    @property
    def length(self) -> int:
        """Tokens after all prompts, the environment's included."""
        return sum(len(span.tokens) for _, spans in self.rows for span in spans)
