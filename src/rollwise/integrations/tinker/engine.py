"""The engine at Tinker: each draw a request of its own, as many under way as the user allows."""

import asyncio
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import tinker
from tinker import types
from transformers import PreTrainedTokenizerBase

from rollwise.engines.asynchronous import AsyncEngine, Outcome, end_other_tasks
from rollwise.engines.engine import Completion, LostDraw, Prompts
from rollwise.errors import EngineError
from rollwise.integrations.tinker.client import as_future, describe
from rollwise.sampling import Draw

SEEDS = 2**31
"""Seeds are folded below this, for Tinker does not say how large they may be."""

RETRIED = (408, 409, 429)
"""Refusals that may pass, beside all that are the server's own errors (from 500 on)."""


class TinkerEngine(AsyncEngine):
    """Draws responses from the sampling client that it was handed last.

    The SDK sends again what fails on the way; what fails for good, or takes too long, is a lost
    draw. What Tinker refuses (no access, a prompt too long) raises. Use the engine as a context
    manager, or close it.

    Args:
        tokenizer: The model's.
        ends: Tokens that end a response.
        context: The most tokens, prompt and response, that the model takes; None if unknown.
        max_new_tokens: Responses are cut here, or where the context ends.
        batch_size: The most draws under way.
        draw_timeout: Seconds for one of them.
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
        self._draw_timeout = draw_timeout
        self._client: Any = None
        super().__init__(batch_size, "tinker")

    def submit(self, draws: Sequence[Draw], prompts: Prompts) -> None:
        """Accept draws, from the weights as they are now; some may have to wait for a slot."""
        for draw in draws:
            prompt = list(prompts[draw.key])
            self._begin(draw, self._complete(draw, prompt, self._client))

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Draw from another sampling client from now on, `weights["client"]`."""
        self._client = weights["client"]

    async def _complete(self, draw: Draw, prompt: list[int], client: Any) -> Outcome:
        request = {
            "prompt": types.ModelInput.from_ints(prompt),
            "num_samples": 1,
            "sampling_params": types.SamplingParams(
                max_tokens=int(min(self._max_new_tokens, self._context - len(prompt))),
                seed=draw.seed % SEEDS,
                stop=self._ends,
            ),
        }
        async with self._free:
            try:
                async with asyncio.timeout(self._draw_timeout):
                    answer = await asyncio.wrap_future(as_future(client.sample(**request)))
            except TimeoutError:
                return LostDraw(draw, f"not done after {self._draw_timeout:g} s")
            except (tinker.TinkerError, ValueError) as error:  # ValueError: no answer to be had
                _check_refusal(error, draw, prompt)
                return LostDraw(draw, describe(error))
        return self._completion(draw, answer.sequences[0])

    def _completion(self, draw: Draw, sequence: Any) -> Completion:
        if sequence.logprobs is None:
            raise EngineError("Tinker sent no log-probabilities of what it drew")
        tokens = list(sequence.tokens)
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        logprobs = np.array(sequence.logprobs, np.float32)
        return Completion(draw, tokens, logprobs, text, truncated=sequence.stop_reason == "length")

    async def _let_go(self) -> None:
        await end_other_tasks()


def _check_refusal(error: Exception, draw: Draw, prompt: Sequence[int]) -> None:
    """Raise an EngineError where Tinker would refuse the same request again."""
    status = getattr(error, "status_code", 500)
    if status < 500 and status not in RETRIED:
        raise EngineError(
            f"Tinker refuses the prompt {draw.key!r} of {len(prompt)} tokens: {describe(error)}"
        ) from None
