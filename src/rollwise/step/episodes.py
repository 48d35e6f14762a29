"""What a draw becomes: an episode; a single response is the shortest kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

End = Literal["done", "truncated", "failed"]
"""How an episode ended: by itself; at a limit of tokens or turns; or because its environment
raised."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that one side adds to an episode.

    Attributes:
        tokens: S token ids.
        logprobs: The log-probability of each of the model's tokens when it was drawn, shape (S,);
            empty if unknown. None for the environment's tokens.
    """

    tokens: Sequence[int]
    logprobs: NDArray[np.float32] | None = None


def spans_by_mask(
    tokens: Sequence[int], loss_mask: Sequence[Any], logprobs: Sequence[float] | None = None
) -> list[Span]:
    """Split tokens into the model's turns, where a mask is true, and the environment's answers."""
    spans, start, known = list[Span](), 0, logprobs or ()
    for drawn, run in groupby(loss_mask):
        stop = start + len(list(run))
        own = np.array(known[start:stop], dtype=np.float32) if drawn else None
        spans.append(Span(tokens[start:stop], own))
        start = stop
    return spans


@dataclass(frozen=True, slots=True)
class Usage:
    """What an episode has cost.

    Attributes:
        tokens: Those that the model drew, also in a turn that was broken off. Budgets, the prices
            of prompts and `tokens` in the metrics count these.
        turns: Of the model.
    """

    tokens: int
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Example:
    """A response to learn from.

    Attributes:
        prompt: Token ids of the prompt.
        response: Token ids of the response, T of them, an environment's included.
        logprobs: The engine's log-probability of each, shape (T,), or empty if it is unknown; 0 for
            the environment's.
        advantage: How much better it did than expected.
        loss_mask: Which tokens the model drew, shape (T,); None if all. Only they are learned from.
    """

    prompt: Sequence[int]
    response: Sequence[int]
    logprobs: NDArray[np.float32]
    advantage: float
    loss_mask: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)

    @property
    def drawn(self) -> int:
        """D, the number of tokens that the model drew."""
        return len(self.response) if self.loss_mask is None else int(self.loss_mask.sum())

    @property
    def drawn_logprobs(self) -> NDArray[np.float32]:
        """The engine's log-probability of each token that the model drew, (D,); NaN if unknown."""
        if len(self.logprobs) < len(self.response):
            return np.full(self.drawn, np.nan, np.float32)
        return self.logprobs if self.loss_mask is None else self.logprobs[self.loss_mask]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The outcome of a draw: what model and environment added to the prompt, in turn.

    Attributes:
        spans: In order; the environment's are not learned from.
        usage: What it cost, with all its rows.
        end: How it ended.
        reward: What the environment gave; None where a grader decides.
        branches: What followed prompts other than the draw's, in order: each a prompt and the
            spans after it. An episode continues from another prompt if its context was compacted
            or a sub-agent was asked. It is one draw with one reward, and all of its rows have the
            same advantage.
    """

    spans: Sequence[Span]
    usage: Usage
    end: End = "done"
    reward: float | None = None
    branches: Sequence[tuple[Sequence[int], Sequence[Span]]] = ()

    @classmethod
    def of(cls, response: Any) -> "Episode":
        """Return a response as an episode: as it is, or as one span of the model's.

        Any response has `tokens`, its T token ids, `logprobs`, shape (T,) or empty if unknown, and
        `truncated`, whether it was cut; a TypeError names what it lacks.
        """
        if isinstance(response, Episode):
            return response
        wanted = ("tokens", "logprobs", "truncated")
        if lacking := [name for name in wanted if not hasattr(response, name)]:
            raise TypeError(
                f"a response must have {', '.join(wanted)}; "
                f"{type(response).__name__} lacks {', '.join(lacking)}: {response!r:.80}"
            )
        span = Span(response.tokens, np.asarray(response.logprobs, np.float32))
        end: End = "truncated" if response.truncated else "done"
        return cls(spans=(span,), usage=Usage(len(response.tokens)), end=end)

    @property
    def tokens(self) -> list[int]:
        """All T tokens after the draw's prompt, the environment's included."""
        return joined(self.spans)[0]

    @property
    def loss_mask(self) -> NDArray[np.bool_]:
        """Which of these tokens the model drew, shape (T,)."""
        return joined(self.spans)[1]

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """The log-probability of each token, 0 for the environment's; empty if one is unknown."""
        return joined(self.spans)[2]

    def examples(self, prompt: Sequence[int], advantage: float) -> Iterator[Example]:
        """Yield what is learned from, after the token ids of the draw's prompt.

        That is one example, and one for each other prompt that the episode continued from, unless
        the model drew nothing there.
        """
        for place, (own, spans) in enumerate([(prompt, self.spans), *self.branches]):
            tokens, mask, logprobs = joined(spans)
            if place == 0 or mask.any():
                yield Example(own, tokens, logprobs, advantage, None if mask.all() else mask)

    @property
    def truncated(self) -> bool:
        """Whether a limit ended it."""
        return self.end == "truncated"


def joined(spans: Sequence[Span]) -> tuple[list[int], NDArray[np.bool_], NDArray[np.float32]]:
    """Return T tokens, which of them the model drew, and the log-probability of each.

    Log-probabilities are 0 for the environment's tokens; none are returned if one is unknown.
    """
    tokens = [token for span in spans for token in span.tokens]
    sizes = [len(span.tokens) for span in spans]
    drawn = np.repeat(np.array([span.logprobs is not None for span in spans], dtype=bool), sizes)
    logprobs = np.zeros(len(tokens), np.float32)
    known = [np.zeros(0, np.float32), *(s.logprobs for s in spans if s.logprobs is not None)]
    if sum(map(len, known)) != drawn.sum():
        return tokens, drawn, np.zeros(0, np.float32)
    logprobs[drawn] = np.concatenate(known)
    return tokens, drawn, logprobs


@dataclass(frozen=True)
class ResponseFigures:
    """A response in a few numbers.

    Attributes:
        tokens: How many the model drew.
        surprisal: The sum of −log π over the tokens that are learned from, in nats; NaN if unknown.
        truncated: Whether it was cut at the limit of new tokens, or another.
        turns: Of the model.
        learned: How many tokens are learned from.
        improbability: √Σ(1 − π)² over these tokens; NaN if unknown.
        end: How it ended.
    """

    tokens: int
    surprisal: float
    truncated: bool
    turns: int = 1
    learned: int = 0
    improbability: float = 0.0
    end: End = "done"

    @classmethod
    def of(cls, response: Any) -> "ResponseFigures":
        """Take the figures of a `Response`; figures are returned as they are."""
        if isinstance(response, cls):
            return response
        episode = Episode.of(response)
        branches = (span for _, spans in episode.branches for span in spans)
        spans = (*episode.spans, *branches)
        own = [(len(s.tokens), s.logprobs) for s in spans if s.logprobs is not None]
        logprobs = np.concatenate([np.zeros(0), *(part for _, part in own)])
        surprisal = improbability = np.nan
        if all(length == len(part) for length, part in own):
            surprisal = -float(np.sum(logprobs))
            improbability = float(np.linalg.norm(np.expm1(logprobs)))
        return cls(
            tokens=episode.usage.tokens,
            surprisal=surprisal,
            truncated=episode.truncated,
            turns=episode.usage.turns,
            learned=sum(length for length, _ in own),
            improbability=improbability,
            end=episode.end,
        )
