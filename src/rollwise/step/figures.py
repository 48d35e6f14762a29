"""A response in a few numbers: what metrics, ledger and cap need of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.step.episodes import End, Episode


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
