"""The engine at Tinker: each draw a request of its own, with a limit on those in flight."""

import asyncio
import math
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import numpy as np
import tinker
from tinker import types
from transformers import PreTrainedTokenizerBase

from rollwise.engines.asynchronous import AsyncEngine, fit_for_a_log, refused_for_good
from rollwise.engines.ends import text_of
from rollwise.errors import EngineError
from rollwise.integrations.tinker.settings import KEY
from rollwise.sampling import Draw
from rollwise.step.response import LostDraw, Response

SEEDS = 2**31
"""Seeds are folded below this, because Tinker does not document how large they may be."""


class TinkerEngine(AsyncEngine):
    """Draws responses, at temperature 1, from the sampling client that was loaded last.

    The SDK retries requests; one that fails for good, or takes too long, is a lost draw. Tinker
    does not promise equal responses for equal seeds.

    Args:
        tokenizer: The model's; turns tokens into text.
        ends: Token ids that end a response.
        context: The most tokens of a prompt and its response together; None if unknown.
        max_new_tokens: Responses are cut here, or where the context ends.
        batch_size: The most requests in flight.
        draw_timeout: Seconds for one draw once it is sent, waiting in Tinker's queue included.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ends: Set[int],
        context: int | None,
        max_new_tokens: int,
        batch_size: int,
        draw_timeout: float,
    ) -> None:
        self._tokenizer, self._ends = tokenizer, sorted(ends)
        self._context, self._max_new_tokens = context or math.inf, max_new_tokens
        self._client: Any = None
        super().__init__(batch_size, draw_timeout)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Use `TinkerLearner.weights` from now on."""
        self._client = weights["client"]

    async def _respond(self, draw: Draw, prompt: list[int]) -> Response:
        request = {
            "prompt": types.ModelInput.from_ints(prompt),
            "num_samples": 1,
            "sampling_params": types.SamplingParams(
                max_tokens=int(min(self._max_new_tokens, self._context - len(prompt))),
                seed=draw.seed % SEEDS,
                stop=self._ends,
            ),
        }
        try:
            answer = await asyncio.wrap_future(self._client.sample(**request).future())
        except (tinker.TinkerError, ValueError) as error:  # ValueError: no usable answer
            if refused_for_good(error):
                raise EngineError(
                    f"Tinker refuses the prompt {draw.key!r} of {len(prompt)} tokens: "
                    f"{describe(error)}"
                ) from None
            raise LostDraw(describe(error)) from None
        sequence = answer.sequences[0]
        tokens = list(sequence.tokens)
        text = text_of(self._tokenizer, tokens, self._ends)
        logprobs = np.array(sequence.logprobs, np.float32)
        return Response(tokens, logprobs, text, truncated=sequence.stop_reason == "length")


@contextmanager
def as_engine_errors(doing: str) -> Iterator[None]:
    """Turn the SDK's errors, raised after minutes of retrying, into ours, which name `doing`."""
    try:
        yield
    except (tinker.TinkerError, ValueError) as error:  # ValueError: an answer it cannot read
        raise EngineError(f"Tinker failed at {doing}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """Describe an error in one line, without the key."""
    return fit_for_a_log(f"{type(error).__name__}: {error}", os.environ.get(KEY))
