"""What becomes of a draw: one response, from the engine to the learner."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollwise.sampling import Draw

Prompts = Mapping[Any, Sequence[int]]
"""Prompt -> its token ids."""

End = Literal["done", "truncated", "failed"]
"""How a response ended: by itself; at a limit of tokens or turns; or because its environment
raised."""


class LostDraw(Exception):
    """Raised by an engine or an environment that could not complete a draw; it is drawn again.

    Attributes:
        reason: Why, in a line.
        tokens: What the model had drawn for it; 0 if that is unknown.
        final: Trying again is of no use.
    """

    def __init__(self, reason: str, tokens: int = 0, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.tokens, self.final = reason, tokens, final


class Figures(NamedTuple):
    """A response in a few numbers.

    Attributes:
        tokens: How many the model drew, also in a turn that was broken off. Budgets, the prices of
            prompts and `tokens` in the metrics count these.
        surprisal: The sum of −log π over the tokens that are learned from, in nats; NaN if unknown.
        truncated: Whether it was cut at the limit of new tokens, or another.
        turns: Of the model; None for a single response, which no environment answers.
        learned: How many tokens are learned from.
        improbability: √Σ(1 − π)² over these tokens; NaN if unknown.
        end: How it ended.
    """

    tokens: int
    surprisal: float = np.nan
    truncated: bool = False
    turns: int | None = None
    learned: int = 0
    improbability: float = np.nan
    end: End = "done"

    @property
    def figures(self) -> "Figures":
        """These figures, so that they can stand in a pool in place of the response."""
        return self


@dataclass(frozen=True, eq=False)
class Response:
    """What a draw became: what an engine returns, a pool holds and a learner takes.

    An episode is one response too: what model and environment added to the prompt, in turn. If it
    continued from other prompts, because its context was compacted or another agent was asked, it
    is still one draw with one reward, and all of its rows have the same advantage.

    Attributes:
        tokens: The T token ids that follow the prompt, the end-of-sequence token included.
        logprobs: The log-probability of each token when it was drawn, shape (T,), at the
            temperature of sampling; NaN where it is unknown, 0 for the environment's tokens. Empty
            if none is known.
        text: What the model said last, without special tokens; a grader grades it.
        truncated: Whether it was cut at the limit of new tokens, or another.
        mask: Which tokens the model drew, shape (T,); None if all. Only they are learned from.
        branches: What followed prompts other than the draw's, in order: each a prompt's token ids,
            and the response to it.
        turns: Turns of the model; None for a single response, which no environment answers.
        broken_off: Tokens that the model drew and that are in no row.
        failed: Whether its environment raised.
        reward: What the environment gave; None where a grader decides.
        transcript: All that was said after the prompt, a line a turn, for people; None if `text` is
            all.
        draw: The draw that it completes. `run_session` sets it.
    """

    tokens: Sequence[int]
    logprobs: NDArray[np.float32] | tuple[()] = ()
    text: str = ""
    truncated: bool = False
    mask: NDArray[np.bool_] | None = None
    branches: "Sequence[tuple[Sequence[int], Response]]" = ()
    turns: int | None = None
    broken_off: int = 0
    failed: bool = False
    reward: float | None = None
    transcript: str | None = None
    draw: Draw | None = None

    @property
    def end(self) -> End:
        """How it ended."""
        return "failed" if self.failed else "truncated" if self.truncated else "done"

    @cached_property
    def drawn(self) -> int:
        """D, the number of these tokens that the model drew."""
        return len(self.tokens) if self.mask is None else int(np.sum(self.mask))

    @property
    def drawn_logprobs(self) -> NDArray[np.float32]:
        """The log-probability of each token that the model drew, shape (D,); NaN if unknown."""
        if len(self.logprobs) < len(self.tokens):
            return np.full(self.drawn, np.nan, np.float32)
        known = np.asarray(self.logprobs, np.float32)
        return known if self.mask is None else known[self.mask]

    @cached_property
    def figures(self) -> Figures:
        """Its figures, over all of its rows."""
        logprobs = self.drawn_logprobs.astype(np.float64)
        if self.branches:
            rows = [row.drawn_logprobs for _, row in self.branches]
            logprobs = np.concatenate([logprobs, *rows])
        learned, improbable = len(logprobs), np.expm1(logprobs)
        return Figures(
            tokens=learned + self.broken_off,
            surprisal=-float(logprobs.sum()),
            truncated=self.truncated,
            turns=self.turns,
            learned=learned,
            improbability=math.sqrt(improbable.dot(improbable)),
            end=self.end,
        )

    def examples(self, prompt: Sequence[int], advantage: float) -> "Iterator[Example]":
        """Yield what is learned from, after the token ids of the draw's prompt.

        That is one example, and one for each other prompt that the episode continued from, unless
        the model drew nothing there.
        """
        yield Example(prompt, self, advantage)
        for own, row in self.branches:
            if row.drawn:
                yield Example(own, row, advantage)


@dataclass(frozen=True, slots=True)
class Example:
    """A response to learn from.

    Attributes:
        prompt: Token ids of the prompt.
        response: What followed it.
        advantage: How much better it did than expected.
    """

    prompt: Sequence[int]
    response: Response
    advantage: float

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response.tokens)


@dataclass
class RolloutCost:
    """What rollouts cost; costs add up with `+`.

    Attributes:
        sampling: Seconds of generation, without those of grading.
        grading: Seconds spent waiting for rewards while nothing was generated.
        tokens: Tokens of all responses, including surplus and cancelled ones and failed attempts.
        failed_tokens: Those of failed attempts.
    """

    sampling: float = 0.0
    grading: float = 0.0
    tokens: int = 0
    failed_tokens: int = 0

    def __add__(self, other: "RolloutCost") -> "RolloutCost":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return RolloutCost(*(own + others for own, others in pairs))
