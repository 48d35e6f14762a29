"""What the built-in engines share: waiting draws, random numbers, sampling a token."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rollwise.engines.ends import end_tokens
from rollwise.engines.engine import Engine
from rollwise.errors import PolicyError
from rollwise.sampling import Draw
from rollwise.step.outcomes import Completion, Prompts

UNKNOWN = 2**20
"""Tokens of a prompt and its response, where the model does not say how many it takes."""


class Response(NamedTuple):
    """A response before it is decoded: its T tokens and their log-probabilities, shape (T,)."""

    draw: Draw
    tokens: list[int]
    logprobs: NDArray[np.float32]


def responses_of(
    draws: Sequence[Draw], tokens: Tensor, logprobs: Tensor, lengths: Iterable[int]
) -> list[Response]:
    """Cut rows of tokens and log-probabilities, shape (draws, most tokens), to their lengths."""
    rows = zip(draws, tokens.tolist(), logprobs.cpu().numpy(), lengths, strict=True)
    return [Response(draw, ids[:length], row[:length].copy()) for draw, ids, row, length in rows]


class InProcessEngine(Engine):
    """Base class of engines that run a model of `transformers` in this process.

    Each draw has its own random numbers, one for each token, so a response does not depend on what
    is drawn beside it (up to the rounding of the model's arithmetic).

    Args:
        model: A causal language model. It may be the learner's own object; otherwise
            `load_weights` keeps it up to date.
        tokenizer: Its tokenizer.
        max_new_tokens: Responses are cut here, and where the model's context ends.
        temperature: Of sampling; above 0.
        batch_size: The most responses drawn at a time.

    Attributes:
        context: The most tokens of a prompt and its response that the model takes.

    Raises:
        ValueError: Neither the model nor the tokenizer has an end-of-sequence token.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 256,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        self.batch_size = batch_size
        self.context: int = getattr(model.config, "max_position_embeddings", None) or UNKNOWN
        ends = sorted(end_tokens(model.generation_config, tokenizer))
        self._end_tokens = torch.tensor(ends, device=model.device)
        self._waiting: dict[Draw, Sequence[int]] = {}

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws.

        Raises:
            ValueError: A prompt is empty, or leaves no room for a response in the model's context.
        """
        for draw in draws:
            length = len(prompts[draw.key])
            if not 0 < length < self.context:
                raise ValueError(
                    f"prompt {draw.key!r} must have 1 to {self.context - 1} tokens, to leave room "
                    f"for a response in the model's context; it has {length}"
                )
        self._waiting.update((draw, prompts[draw.key]) for draw in draws)

    def ignore_ends(self) -> bool:
        """Let all responses that are drawn from now on be as long as they may be."""
        self._end_tokens.fill_(-1)
        return True

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; tensors shared with the learner stay as they are."""
        own = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in weights.items():
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)

    def _completions(self, responses: Sequence[Response]) -> list[Completion]:
        """Decode finished responses; a `PolicyError` if a probability is not finite."""
        if not all(np.isfinite(response.logprobs).all() for response in responses):
            raise PolicyError("the policy draws tokens whose probabilities are not finite")
        ends = set(self._end_tokens.tolist())
        texts = self.tokenizer.batch_decode(
            [response.tokens for response in responses], skip_special_tokens=True
        )
        return [
            Completion(r.draw, r.tokens, r.logprobs, text, truncated=r.tokens[-1] not in ends)
            for r, text in zip(responses, texts, strict=True)
        ]


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a token a row by inverting the cumulative distribution at `uniforms`.

    Args:
        logits: Shape (B, V).
        uniforms: Shape (B,), in [0, 1).

    Returns:
        Tokens and their log-probabilities, shape (B,) each. A token of probability 0 is never
        drawn. In a row whose logits are not finite, the log-probability is NaN.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    cumulative = logprobs.exp().cumsum(dim=-1)
    # Even the largest number below 1 leaves the target below the total, whatever it rounds to.
    target = uniforms * cumulative[:, -1]
    tokens = torch.searchsorted(cumulative, target[:, None], right=True)
    tokens.clamp_(max=logits.shape[-1] - 1)  # beyond it only if the total is NaN
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def uniforms_of(draws: Sequence[Draw], count: int) -> NDArray[np.float32]:
    """Return the random numbers of each draw, shape (draws, count), in [0, 1).

    They come from a Philox generator keyed by the draw's seed. One generator is re-keyed for each
    draw, because making a new one would read entropy from the system and not use it.
    """
    philox = np.random.Philox(key=0)
    generator, state = np.random.Generator(philox), philox.state
    rows = np.empty((len(draws), count), dtype=np.float32)
    for row, draw in zip(rows, draws, strict=True):
        state["state"]["key"][0] = draw.seed
        philox.state = state
        generator.random(dtype=np.float32, out=row)
    return rows
