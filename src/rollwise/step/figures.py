"""A response in a few numbers: what metrics, ledger and cap need of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwise.step.episodes import Episode


@dataclass(frozen=True)
class ResponseFigures:
    """A response in a few numbers.

    Attributes:
        tokens: How many the model drew.
        surprisal: The sum of −log π over the D tokens that are learned from, in nats; NaN where it
            is not known.
        truncated: Whether it was cut at the limit of new tokens, or another.
        turns: Of the model.
        learned: D.
        improbability: √Σ(1 − π)² over these tokens; NaN where it is not known.
    """

    tokens: int
    surprisal: float
    truncated: bool
    turns: int = 1
    learned: int = 0
    improbability: float = 0.0

    @classmethod
    def of(cls, response: Any) -> "ResponseFigures":
        """Take the figures of a `Response`; figures are returned as they are."""
        if isinstance(response, cls):
            return response
        episode = Episode.of(response)
        branches = (span for _, spans in episode.further for span in spans)
        spans = [span for span in (*episode.spans, *branches) if span.logprobs is not None]
        learned = sum(len(span.tokens) for span in spans)
        logprobs = np.concatenate([np.zeros(0), *(span.logprobs for span in spans)])
        surprisal = improbability = np.nan
        if all(len(span.tokens) == len(span.logprobs) for span in spans):
            surprisal = -float(np.sum(logprobs))
            improbability = float(np.linalg.norm(np.expm1(logprobs)))
        return cls(
            tokens=episode.price.tokens,
            surprisal=surprisal,
            truncated=episode.truncated,
            turns=episode.price.turns,
            learned=learned,
            improbability=improbability,
        )
