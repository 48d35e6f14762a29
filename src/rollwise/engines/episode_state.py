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
        seconds: The most seconds, from the first turn on; None for no limit.
        context: The most tokens of prompt and episode; infinite if unknown.
        turn_tokens: The most tokens of a turn: what must be left of the context for one to begin.
    """

    turns: int = 16
    tokens: int = 8192
    seconds: float | None = None
    context: float = math.inf
    turn_tokens: int = 1

    def __post_init__(self) -> None:
        at_least("turns", self.turns, 1)
        at_least("tokens", self.tokens, 1)
        if self.seconds is not None:
            above_zero("seconds", self.seconds)


@dataclass(eq=False)
class Playing:
    """An episode under way."""

    draw: Draw
    prompt: Sequence[int]
    began: float
    tokens: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    before: list[tuple[Sequence[int], Sequence[Span]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    drawn: int = 0
    turns: int = 0
    last: Completion | None = None
    play: Play | None = None
    turn: Draw | None = None
    answering: "Future[Turn] | None" = None
    reward: float = 0.0

    def add(self, tokens: Sequence[int], text: str, span: Span) -> None:
        """Append what one side has said."""
        self.tokens += tokens
        self.said.append(text)
        self.spans.append(span)

    def begin_anew(self, prompt: Sequence[int], text: str) -> None:
        """Go on from another prompt."""
        self.before.append((self.prompt, tuple(self.spans)))
        self.prompt, self.tokens, self.spans = prompt, [], []
        self.said.append(text)

    @property
    def rows(self) -> list[tuple[Sequence[int], Sequence[Span]]]:
        """Each prompt, with what followed from it."""
        return [*self.before, (self.prompt, tuple(self.spans))]

    @property
    def length(self) -> int:
        """Tokens after all prompts, the environment's included."""
        earlier = sum(len(span.tokens) for _, spans in self.before for span in spans)
        return earlier + len(self.tokens)
